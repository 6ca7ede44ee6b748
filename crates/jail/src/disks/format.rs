//! An empty ext4 with exactly as much room as was asked for: which blocks of an image differ from zeros.
//!
//! `mkfs.ext4` rounds sizes and numbers of inodes, and the jail's root has no programs of the host's. What it would
//! write is little: there is no journal, no checksum and no copy of anything. All of the file system's own blocks come
//! first; what lies beyond the room that was asked for is marked as used, blocks as well as inodes.
//!
//! ```text
//!  0           1 …            …              …              …            …             …
//!  superblock  group          block bitmap   inode bitmap   inode        root    room  used
//!              descriptors    per group      per group      tables       folder
//! ```

/// Size of a block in bytes.
pub(crate) const BLOCK: u64 = 4096;
/// Blocks of a group, and the most inodes: as many as one block has bits.
const PER_GROUP: u64 = BLOCK * 8;
const DESCRIPTOR: u64 = 32;
const INODE: u64 = 256;
const INODES_PER_BLOCK: u64 = BLOCK / INODE;
/// Inodes that a file system keeps for itself.
const RESERVED_INODES: u64 = 10;
const ROOT: usize = 2;
/// Linux keeps a fiftieth of all blocks, 4096 at most, for splitting extents; nobody's files get them.
const KEPT: (u64, u64) = (50, 4096);

/// Sparse superblocks with two copies at most, none of which is there; files beyond 2 GiB; extents; and such.
const COMPATIBLE: u32 = 0x8 | 0x20 | 0x200; // ext_attr, dir_index, sparse_super2
const INCOMPATIBLE: u32 = 0x2 | 0x40 | 0x200; // filetype, extents, flex_bg
const READ_COMPATIBLE: u32 = 0x2 | 0x8 | 0x20 | 0x40; // large_file, huge_file, dir_nlink, extra_isize

/// A block of an image: its number and its content.
pub(crate) type Block = (u64, Vec<u8>);

/// What lies where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    groups: u64,
    inodes_per_group: u64,
    /// Blocks and inodes that can be used.
    blocks: u64,
    inodes: u64,
}

impl Format {
    /// The smallest whole number of groups with room for as many bytes and inodes. Larger ones of both never take
    /// fewer groups.
    pub(crate) fn of(bytes: u64, inodes: u64) -> Self {
        let blocks = bytes / BLOCK;
        let mut groups = blocks.div_ceil(PER_GROUP).max(1);
        loop {
            let inodes_per_group = (inodes + RESERVED_INODES).div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
            let format = Self { groups, inodes_per_group, blocks, inodes };
            if inodes_per_group <= PER_GROUP && format.end() <= format.all_blocks() {
                return format;
            }
            groups += 1;
        }
    }

    /// Size of the image.
    pub(crate) fn bytes(&self) -> u64 {
        self.all_blocks() * BLOCK
    }

    fn all_blocks(&self) -> u64 {
        self.groups * PER_GROUP
    }

    fn block_bitmaps(&self) -> u64 {
        1 + (self.groups * DESCRIPTOR).div_ceil(BLOCK)
    }

    fn inode_bitmaps(&self) -> u64 {
        self.block_bitmaps() + self.groups
    }

    fn inode_table(&self, group: u64) -> u64 {
        self.inode_bitmaps() + self.groups + group * self.inodes_per_group / INODES_PER_BLOCK
    }

    fn root_folder(&self) -> u64 {
        self.inode_table(self.groups)
    }

    /// The first block that is not free, after those that are.
    fn end(&self) -> u64 {
        let (share, most) = KEPT;
        self.root_folder() + 1 + self.blocks + (self.all_blocks() / share).min(most)
    }

    /// Free blocks of a group: where they begin and end in it.
    fn free_blocks(&self, group: u64) -> (u64, u64) {
        within(group, PER_GROUP, self.root_folder() + 1, self.end())
    }

    fn free_inodes(&self, group: u64) -> (u64, u64) {
        within(group, self.inodes_per_group, RESERVED_INODES, RESERVED_INODES + self.inodes)
    }

    /// Every block with something in it.
    pub(crate) fn written(&self) -> Vec<Block> {
        let mut written = vec![(0, self.superblock())];
        let descriptors = (0..self.groups).flat_map(|group| self.descriptor(group)).collect();
        written.push((1, whole(descriptors)));
        for group in 0..self.groups {
            let free = self.free_blocks(group);
            if free != (0, PER_GROUP) {
                written.push((self.block_bitmaps() + group, bitmap(free)));
            }
            // Bits that stand for no inode are set.
            written.push((self.inode_bitmaps() + group, bitmap(self.free_inodes(group))));
        }
        written.push((self.inode_table(0), self.inodes_of_root()));
        written.push((self.root_folder(), root_folder()));
        written
    }

    fn superblock(&self) -> Vec<u8> {
        let count = |free: fn(&Self, u64) -> (u64, u64)| -> u64 {
            (0..self.groups).map(|group| free(self, group)).map(|(start, end)| end - start).sum()
        };
        let mut block = Fields::new();
        let at = |offset: usize| 1024 + offset;
        block.put32(at(0x00), self.groups * self.inodes_per_group);
        block.put32(at(0x04), self.all_blocks());
        block.put32(at(0x0C), count(Self::free_blocks));
        block.put32(at(0x10), count(Self::free_inodes));
        for (offset, value) in [
            (0x18, 2),         // blocks are 1024 << 2 bytes
            (0x1C, 2),         // and so are clusters
            (0x20, PER_GROUP), // blocks per group
            (0x24, PER_GROUP), // clusters per group
            (0x28, self.inodes_per_group),
            (0x4C, 1),                   // inode sizes vary
            (0x54, RESERVED_INODES + 1), // first inode of files
            (0x5C, COMPATIBLE.into()),
            (0x60, INCOMPATIBLE.into()),
            (0x64, READ_COMPATIBLE.into()),
        ] {
            block.put32(at(offset), value);
        }
        for (offset, value) in [
            (0x36, 0xFFFF), // never to be checked for having been mounted often
            (0x38, 0xEF53), // magic
            (0x3A, 1),      // clean
            (0x3C, 2),      // read-only after an error
            (0x58, INODE),
            (0x15C, 32), // every inode has so many bytes more than the oldest ones
            (0x15E, 32),
        ] {
            block.put16(at(offset), value);
        }
        block.put8(at(0xFC), 1); // half MD4 for the names of large folders
        block.put8(at(0x174), 4); // 1 << 4 groups next to each other
        block.0
    }

    fn descriptor(&self, group: u64) -> Vec<u8> {
        let length = |(start, end): (u64, u64)| end - start;
        let mut descriptor = Fields(vec![0; usize::try_from(DESCRIPTOR).unwrap_or(0)]);
        descriptor.put32(0x0, self.block_bitmaps() + group);
        descriptor.put32(0x4, self.inode_bitmaps() + group);
        descriptor.put32(0x8, self.inode_table(group));
        descriptor.put16(0xC, length(self.free_blocks(group)));
        descriptor.put16(0xE, length(self.free_inodes(group)));
        descriptor.put16(0x10, u64::from(group == 0)); // folders
        descriptor.0
    }

    /// The first inodes, of which only the root folder's is more than zeros.
    fn inodes_of_root(&self) -> Vec<u8> {
        let mut block = Fields::new();
        let at = |offset: usize| (ROOT - 1) * 256 + offset;
        block.put16(at(0x00), 0o040_755);
        block.put32(at(0x04), BLOCK);
        block.put16(at(0x1A), 2); // links
        block.put32(at(0x1C), BLOCK / 512);
        block.put32(at(0x20), 0x8_0000); // has extents
        for (offset, value) in [(0x28, 0xF30A), (0x2A, 1), (0x2C, 4)] {
            block.put16(at(offset), value); // a header for one of at most four extents
        }
        block.put16(at(0x38), 1); // of one block
        block.put32(at(0x3C), self.root_folder());
        block.put16(at(0x80), 32);
        block.0
    }
}

/// `.` and `..`, both of them the root.
fn root_folder() -> Vec<u8> {
    let mut block = Fields::new();
    for (at, length, name) in [(0, 12, "."), (12, BLOCK - 12, "..")] {
        block.put32(at, 2);
        block.put16(at + 4, length);
        block.put8(at + 6, u8::try_from(name.len()).unwrap_or(0));
        block.put8(at + 7, 2); // a folder
        block.put(at + 8, name.as_bytes());
    }
    block.0
}

/// The part of `start..end` that lies in a group, from the group's beginning.
fn within(group: u64, size: u64, start: u64, end: u64) -> (u64, u64) {
    let place = |number: u64| number.saturating_sub(group * size).min(size);
    (place(start), place(end))
}

/// A block whose bits are set, but for those that are free.
fn bitmap((start, end): (u64, u64)) -> Vec<u8> {
    let mask = |from: u64, byte: u64| u8::MAX.checked_shl(u32::try_from(from.saturating_sub(byte * 8)).unwrap_or(8));
    let bytes = (0..BLOCK).map(|byte| {
        let free = mask(start, byte).unwrap_or(0) & !mask(end, byte).unwrap_or(0);
        !free
    });
    bytes.collect()
}

/// Filled up to whole blocks.
fn whole(mut bytes: Vec<u8>) -> Vec<u8> {
    let block = usize::try_from(BLOCK).unwrap_or(1);
    bytes.resize(bytes.len().next_multiple_of(block), 0);
    bytes
}

/// Numbers at fixed places.
struct Fields(Vec<u8>);

impl Fields {
    fn new() -> Self {
        Self(whole(vec![0]))
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn put8(&mut self, at: usize, value: u8) {
        self.put(at, &[value]);
    }

    /// The lower half of a number that has no upper one.
    fn put16(&mut self, at: usize, value: u64) {
        debug_assert!(u16::try_from(value).is_ok(), "{value}");
        self.put(at, value.to_le_bytes().get(..2).unwrap_or_default());
    }

    fn put32(&mut self, at: usize, value: u64) {
        debug_assert!(u32::try_from(value).is_ok(), "{value}");
        self.put(at, value.to_le_bytes().get(..4).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
