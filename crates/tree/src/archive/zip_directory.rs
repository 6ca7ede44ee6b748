//! A zip's central directory, and whether everything else in the file is what it says.
//!
//! Members must lie one after another from the file's first byte to the directory, and the directory must end where the
//! file does: no byte belongs to two members or to none. What the header before a member says must be what the directory
//! says. Fields of 64 bits count where the field of 32 bits says so, and nowhere else.

use super::entry::refuse;
use crate::blob_store::Scratch;
use crate::error::TreeError;

/// Largest directory.
const MAX_DIRECTORY: u64 = 128 << 20;
const END: u64 = 22;
const END_64: u64 = 56;
const LOCATOR: u64 = 20;
const FULL: u64 = 0xffff_ffff;

/// Where and what a member is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) deflated: bool,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(super) size: u64,
    /// Of its content.
    pub(super) start: u64,
    /// As Unix has it; `None` from a system that has none.
    pub(super) mode: Option<u32>,
    flags: u16,
    offset: u64,
}

/// Little-endian fields, one after another.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn two(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn four(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn eight(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Where the directory is.
struct Place {
    start: u64,
    length: u64,
    members: u64,
}

/// All members, in the directory's order.
pub(super) fn read(file: &Scratch, max_members: u64) -> Result<Vec<Listed>, TreeError> {
    let place = find(file)?;
    if place.members > max_members {
        return Err(TreeError::TooMany { what: "the members of the archive", limit: max_members });
    }
    if place.length > MAX_DIRECTORY {
        return Err(TreeError::TooLarge { what: "the directory of the archive", limit: MAX_DIRECTORY });
    }
    let bytes = read_at(file, place.start, place.length)?;
    let mut fields = Fields(&bytes);
    let mut members = Vec::new();
    for _ in 0..place.members {
        members.push(central(&mut fields)?);
    }
    if !fields.0.is_empty() {
        return Err(broken("its directory is longer than its members"));
    }
    tile(file, &mut members, place.start)?;
    Ok(members)
}

fn broken(fault: &'static str) -> TreeError {
    refuse(b"(directory)", fault)
}

fn read_at(file: &Scratch, offset: u64, length: u64) -> Result<Vec<u8>, TreeError> {
    let cut = "the archive is cut off";
    if offset.checked_add(length).is_none_or(|end| end > file.length()) {
        return Err(broken(cut));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_cause| broken(cut))?];
    file.read_exact_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// The end record, which must be the only one that fits.
fn find(file: &Scratch) -> Result<Place, TreeError> {
    let length = file.length();
    let no_end = || broken("no zip, or cut off: its directory is not at the end");
    let tail_start = length.saturating_sub(END + 0xffff);
    let tail = read_at(file, tail_start, length - tail_start)?;
    let mut ends = tail.windows(22).enumerate().filter(|(at, window)| {
        let comment = window.last_chunk::<2>().map_or(0, |two| usize::from(u16::from_le_bytes(*two)));
        window.starts_with(b"PK\x05\x06") && at + 22 + comment == tail.len()
    });
    let (at, end) = ends.next().ok_or_else(no_end)?;
    if ends.next().is_some() {
        return Err(broken("two ends"));
    }
    let at = tail_start + at as u64;
    let mut fields = Fields(end.get(4..).unwrap_or_default());
    let mut parse = || {
        let (disk, first, here) = (fields.two()?, fields.two()?, fields.two()?);
        Some((disk, first, here, fields.two()?, fields.four()?, fields.four()?))
    };
    let (disk, first, here, members, size, start) = parse().ok_or_else(no_end)?;
    if disk != 0 || first != 0 || here != members {
        return Err(broken("an archive in several parts"));
    }
    let (members, length, start) = (u64::from(members), u64::from(size), u64::from(start));
    let (place, end) = match wide_end(file, at)? {
        Some((wide, end)) => {
            let agrees = |narrow, full, wide| narrow == full || narrow == wide;
            if !agrees(members, 0xffff, wide.members)
                || !agrees(length, FULL, wide.length)
                || !agrees(start, FULL, wide.start)
            {
                return Err(broken("its two ends do not agree"));
            }
            (wide, end)
        }
        None if members == 0xffff || length == FULL || start == FULL => {
            return Err(broken("its end of 64 bits is missing"));
        }
        None => (Place { start, length, members }, at),
    };
    if place.start.checked_add(place.length) != Some(end) {
        return Err(broken("its directory is not before its end"));
    }
    Ok(place)
}

/// The end record of 64 bits and where it is, if the one at `at` has such a thing before it.
fn wide_end(file: &Scratch, at: u64) -> Result<Option<(Place, u64)>, TreeError> {
    let Some(locator_at) = at.checked_sub(LOCATOR) else { return Ok(None) };
    let locator = read_at(file, locator_at, LOCATOR)?;
    let Some(rest) = locator.strip_prefix(b"PK\x06\x07") else { return Ok(None) };
    let wrong = || broken("its end of 64 bits is not where it says");
    let mut fields = Fields(rest);
    let mut parse = || Some((fields.four()?, fields.eight()?, fields.four()?));
    let (disk, offset, disks) = parse().ok_or_else(wrong)?;
    if disk != 0 || disks > 1 || offset.checked_add(END_64) != Some(locator_at) {
        return Err(wrong());
    }
    let record = read_at(file, offset, END_64)?;
    let mut fields = Fields(record.strip_prefix(b"PK\x06\x06").ok_or_else(wrong)?);
    let mut parse = || {
        let (size, _versions) = (fields.eight()?, fields.four()?);
        let (disk, first) = (fields.four()?, fields.four()?);
        let (here, members, length) = (fields.eight()?, fields.eight()?, fields.eight()?);
        Some((size, disk, first, here, members, length, fields.eight()?))
    };
    let (size, disk, first, here, members, length, start) = parse().ok_or_else(wrong)?;
    if size != END_64 - 12 || disk != 0 || first != 0 || here != members {
        return Err(wrong());
    }
    Ok(Some((Place { start, length, members }, offset)))
}

fn central(fields: &mut Fields<'_>) -> Result<Listed, TreeError> {
    let cut = || broken("its directory is cut off");
    let fixed = fields.take(46).ok_or_else(cut)?;
    let mut head = Fields(fixed.strip_prefix(b"PK\x01\x02").ok_or_else(cut)?);
    let mut parse = || {
        let (made_by, _needed, flags, method) = (head.two()?, head.two()?, head.two()?, head.two()?);
        let (_time, crc, packed, size) = (head.four()?, head.four()?, head.four()?, head.four()?);
        let (name, extra, comment, disk) = (head.two()?, head.two()?, head.two()?, head.two()?);
        let (_internal, external, offset) = (head.two()?, head.four()?, head.four()?);
        Some((made_by, flags, method, crc, packed, size, [name, extra, comment], disk, external, offset))
    };
    let (made_by, flags, method, crc, packed, size, lengths, disk, external, offset) = parse().ok_or_else(cut)?;
    let mut take = |length: u16| fields.take(usize::from(length));
    let (name, extra, _comment) = match lengths.map(&mut take) {
        [Some(name), Some(extra), Some(comment)] => (name, extra, comment),
        _ => return Err(cut()),
    };
    check_flags(name, flags)?;
    if disk != 0 {
        return Err(refuse(name, "an archive in several parts"));
    }
    let deflated = match method {
        0 => false,
        8 => true,
        _ => return Err(refuse(name, "a compression that is not deflate")),
    };
    let narrow = [size, packed, offset].map(u64::from);
    let [size, packed, offset] = widen(name, extra, narrow)?;
    if !deflated && packed != size {
        return Err(refuse(name, "two sizes for one member"));
    }
    // 3 is Unix, 19 macOS: they keep the mode in the upper half.
    let mode = matches!(made_by >> 8, 3 | 19).then_some(external >> 16);
    Ok(Listed { name: name.to_vec(), deflated, crc, packed, size, start: 0, mode, flags, offset })
}

fn check_flags(name: &[u8], flags: u16) -> Result<(), TreeError> {
    const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
    const KNOWN: u16 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 11;
    if flags & ENCRYPTED != 0 {
        return Err(refuse(name, "it is encrypted"));
    }
    if flags & !KNOWN != 0 {
        return Err(refuse(name, "flags that are not known"));
    }
    Ok(())
}

/// The fields as they count: those that are full come, in order, from the extra field of 64 bits.
fn widen<const N: usize>(name: &[u8], extra: &[u8], narrow: [u64; N]) -> Result<[u64; N], TreeError> {
    let bad = || refuse(name, "an extra field that is broken");
    let mut wide = None;
    let mut rest = Fields(extra);
    while !rest.0.is_empty() {
        let mut field = || {
            let (id, length) = (rest.two()?, rest.two()?);
            Some((id, rest.take(usize::from(length))?))
        };
        let (id, bytes) = field().ok_or_else(bad)?;
        match id {
            1 if wide.is_some() => return Err(bad()),
            1 => wide = Some(bytes),
            // A name beside the name: a check byte, a checksum, the name as UTF-8.
            0x7075 if bytes.get(5..) != Some(name) => return Err(refuse(name, "two names for one member")),
            _ => {}
        }
    }
    let lies = || refuse(name, "its fields of 64 bits do not fit those of 32");
    let mut wide_fields = Fields(wide.unwrap_or_default());
    let mut out = narrow;
    for value in out.iter_mut().filter(|value| **value == FULL) {
        *value = wide_fields.eight().ok_or_else(lies)?;
    }
    if wide_fields.0.is_empty() { Ok(out) } else { Err(lies()) }
}

/// That members follow each other without gap or overlap, and say themselves what the directory says of them.
fn tile(file: &Scratch, members: &mut [Listed], directory: u64) -> Result<(), TreeError> {
    let mut order: Vec<&mut Listed> = members.iter_mut().collect();
    order.sort_by_key(|member| member.offset);
    let mut end = 0;
    for member in order {
        if member.offset != end {
            return Err(refuse(&member.name, "it overlaps another member, or bytes before it belong to none"));
        }
        end = local(file, member, directory)?;
    }
    if end == directory { Ok(()) } else { Err(broken("bytes before it belong to no member")) }
}

/// Checks a member's own header and returns where the member ends.
fn local(file: &Scratch, member: &mut Listed, directory: u64) -> Result<u64, TreeError> {
    let name = member.name.clone();
    let differs = || refuse(&name, "its own header says something else than the directory");
    let head = read_at(file, member.offset, 30)?;
    let mut fields = Fields(head.strip_prefix(b"PK\x03\x04").ok_or_else(differs)?);
    let mut parse = || {
        let (_needed, flags, method, _time) = (fields.two()?, fields.two()?, fields.two()?, fields.four()?);
        let (crc, packed, size) = (fields.four()?, fields.four()?, fields.four()?);
        Some((flags, method, crc, packed, size, fields.two()?, fields.two()?))
    };
    let (flags, method, crc, packed, size, name_length, extra_length) = parse().ok_or_else(differs)?;
    let behind = member.offset + 30;
    let text = read_at(file, behind, u64::from(name_length) + u64::from(extra_length))?;
    let (own_name, extra) = text.split_at_checked(usize::from(name_length)).ok_or_else(differs)?;
    if own_name != name || flags != member.flags || (method == 8) != member.deflated || !matches!(method, 0 | 8) {
        return Err(differs());
    }
    let later = flags & (1 << 3) != 0;
    let [own_size, own_packed] = local_sizes(&name, extra, [size, packed].map(u64::from), later)?;
    let same = (crc, own_packed, own_size) == (member.crc, member.packed, member.size);
    let unsaid = later && (crc, own_packed, own_size) == (0, 0, 0);
    if !same && !unsaid {
        return Err(differs());
    }
    member.start = behind + text.len() as u64;
    let end = member.start.checked_add(member.packed).filter(|end| *end <= directory).ok_or_else(differs)?;
    if !later {
        return Ok(end);
    }
    descriptor(file, member, end, directory)
}

/// As [`widen`]. Who does not know sizes yet may write both fields of 64 bits whatever those of 32 say.
fn local_sizes(name: &[u8], extra: &[u8], narrow: [u64; 2], later: bool) -> Result<[u64; 2], TreeError> {
    match widen(name, extra, narrow) {
        Err(_lies) if later && narrow == [0, 0] => widen(name, extra, [FULL, FULL]),
        other => other,
    }
}

/// The checksum and sizes behind a member that was written before they were known: with or without a signature, in 32
/// or 64 bits. The reading that says what the directory says.
fn descriptor(file: &Scratch, member: &Listed, at: u64, directory: u64) -> Result<u64, TreeError> {
    let room = directory.saturating_sub(at).min(24);
    let bytes = read_at(file, at, room)?;
    let crc = member.crc.to_le_bytes();
    let narrow = |value: u64| u32::try_from(value).ok().map(u32::to_le_bytes);
    let mut forms: Vec<Vec<u8>> = Vec::new();
    let wide = [&crc[..], &member.packed.to_le_bytes(), &member.size.to_le_bytes()].concat();
    if let (Some(packed), Some(size)) = (narrow(member.packed), narrow(member.size)) {
        forms.push([&b"PK\x07\x08"[..], &crc, &packed, &size].concat());
        forms.push([&crc[..], &packed, &size].concat());
    }
    forms.push([b"PK\x07\x08", wide.as_slice()].concat());
    forms.push(wide);
    // What follows is another member or the directory, which decides between readings that are the start of others.
    for form in forms.iter().filter(|form| bytes.starts_with(form)) {
        let end = at + form.len() as u64;
        if end == directory || read_at(file, end, 4.min(directory - end))?.starts_with(b"PK\x03\x04") {
            return Ok(end);
        }
    }
    Err(refuse(&member.name, "what is behind its content says something else than the directory"))
}
