//! Reads a tar as hostile input: one reading of each header, or none.

use std::io::{self, Read};

use bailey_protocol::change::NoticeReason;
use bailey_protocol::path::MAX_PATH_BYTES;

use super::entry::{Member, MemberKind, check_target, clean, mode, refuse};
use super::ratio::Bomb;
use super::tar_header::{BLOCK, Header, decode_number, flag};
use crate::error::TreeError;

/// Largest PAX header.
const MAX_PAX: u64 = 1 << 20;
/// Most zeros after the end: tapes were filled up to a whole record.
const MAX_TAIL: u64 = 4 << 20;
/// Sizes from here on do not fit a header's octal field.
const OCTAL_END: u64 = 1 << 33;

/// A tar being read. Memory is one header and the names that go with it.
#[derive(Debug)]
pub struct TarReader<R> {
    input: R,
    /// Content of the member at hand that was not read yet, and the padding after it.
    left: u64,
    padding: u64,
    /// The member at hand, for errors.
    at: Vec<u8>,
    over: bool,
}

/// What was said of the next member before its header.
#[derive(Debug, Default)]
struct Ahead {
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Option<Pax>,
}

#[derive(Debug, Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    xattrs: bool,
}

impl<R: Read> TarReader<R> {
    /// Reads the tar that `input` holds from its first byte to its last.
    pub fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, at: Vec::new(), over: false }
    }

    /// The next member; `None` after the last, when all of the input was read and nothing was left over.
    ///
    /// # Errors
    /// When the archive is to be refused, or the input breaks off.
    pub fn next_member(&mut self) -> Result<Option<Member>, TreeError> {
        if self.over {
            return Ok(None);
        }
        let mut ahead = Ahead::default();
        loop {
            self.skip()?;
            let header = self.block()?;
            if header.is_zero() {
                if ahead.any() {
                    return Err(self.refuse("it ends after a name without its member"));
                }
                return self.end().map(|()| None);
            }
            self.at = header.text(0, 100).to_vec();
            let size = self.check(&header)?;
            match header.field(156, 1).first().copied().unwrap_or_default() {
                flag::LONG_NAME => self.long(size, &mut ahead.long_name)?,
                flag::LONG_LINK => self.long(size, &mut ahead.long_link)?,
                flag::PAX if ahead.pax.is_none() => ahead.pax = Some(self.pax(size, false)?),
                flag::PAX => return Err(self.refuse("two PAX headers")),
                flag::PAX_GLOBAL if ahead.any() => return Err(self.refuse("a PAX header in the wrong place")),
                flag::PAX_GLOBAL => drop(self.pax(size, true)?),
                kind => return self.member(&header, kind, size, ahead).map(Some),
            }
        }
    }

    /// The content of the member at hand.
    pub fn content(&mut self) -> impl Read + '_ {
        Content(self)
    }

    fn refuse(&self, fault: &'static str) -> TreeError {
        refuse(&self.at, fault)
    }

    /// What a failed read means: of the archive's own making, or the transport's.
    pub(super) fn read_error(&self, error: io::Error) -> TreeError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.refuse("the archive is cut off"),
            io::ErrorKind::InvalidData if error.get_ref().is_some_and(|inner| inner.is::<Bomb>()) => {
                self.refuse("the archive unpacks to more than 250 times its size")
            }
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => self.refuse("the compression is damaged"),
            _ => TreeError::Input { source: error },
        }
    }

    fn block(&mut self) -> Result<Header, TreeError> {
        let mut header = Header([0; 512]);
        self.input.read_exact(&mut header.0).map_err(|error| self.read_error(error))?;
        Ok(header)
    }

    fn skip(&mut self) -> Result<(), TreeError> {
        let length = self.left + self.padding;
        let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink());
        (self.left, self.padding) = (0, 0);
        match skipped.map_err(|error| self.read_error(error))? {
            count if count == length => Ok(()),
            _ => Err(self.refuse("the archive is cut off")),
        }
    }

    /// The header's own size, if all that every header has is in order.
    fn check(&self, header: &Header) -> Result<u64, TreeError> {
        if decode_number(header.field(148, 8)) != Some(header.sum()) {
            return Err(self.refuse("the header does not match its checksum"));
        }
        let size = decode_number(header.field(124, 12)).ok_or_else(|| self.refuse("a size that is none"))?;
        match header.field(257, 6) {
            b"ustar\0" | b"ustar " | [0, 0, 0, 0, 0, 0] => Ok(size),
            _ => Err(self.refuse("a format that is not known")),
        }
    }

    /// The whole content of a member that is about another.
    fn whole(&mut self, size: u64, limit: u64) -> Result<Vec<u8>, TreeError> {
        if size > limit {
            return Err(self.refuse("a longer name than any path has"));
        }
        self.stand_before(size);
        let mut bytes = Vec::new();
        let read = Content(self).read_to_end(&mut bytes);
        read.map_err(|error| self.read_error(error))?;
        Ok(bytes)
    }

    fn stand_before(&mut self, size: u64) {
        self.left = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    fn long(&mut self, size: u64, to: &mut Option<Vec<u8>>) -> Result<(), TreeError> {
        if to.is_some() {
            return Err(self.refuse("two long names"));
        }
        let mut bytes = self.whole(size, MAX_PATH_BYTES as u64 + 512)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(self.refuse("a long name that is none"));
        }
        *to = Some(bytes);
        Ok(())
    }

    /// A PAX header; a global one may only carry remarks.
    fn pax(&mut self, size: u64, global: bool) -> Result<Pax, TreeError> {
        let bytes = self.whole(size, MAX_PAX)?;
        let mut pax = Pax::default();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (key, value, tail) = record(rest).ok_or_else(|| self.refuse("a PAX record that is none"))?;
            rest = tail;
            let twice = || self.refuse("a PAX record twice");
            match key {
                b"comment" | b"mtime" | b"atime" | b"ctime" | b"uid" | b"gid" | b"uname" | b"gname" => {}
                b"charset" | b"hdrcharset" | b"SCHILY.dev" | b"SCHILY.ino" | b"SCHILY.nlink" => {}
                b"LIBARCHIVE.creationtime" => {}
                _ if global => return Err(self.refuse("a global PAX record that changes members")),
                b"path" if pax.path.is_some() => return Err(twice()),
                b"linkpath" if pax.link.is_some() => return Err(twice()),
                b"size" if pax.size.is_some() => return Err(twice()),
                b"path" => pax.path = Some(value.to_vec()),
                b"linkpath" => pax.link = Some(value.to_vec()),
                b"size" => pax.size = Some(decimal(value).ok_or_else(|| self.refuse("a size that is none"))?),
                _ if is_attribute(key) => pax.xattrs = true,
                _ if key.starts_with(b"GNU.sparse.") || key == b"SCHILY.realsize" => {
                    return Err(self.refuse("a sparse file: archive it whole"));
                }
                _ => return Err(self.refuse("a PAX record of an unknown kind")),
            }
        }
        if [&pax.path, &pax.link].into_iter().flatten().any(|text| text.is_empty() || text.contains(&0)) {
            return Err(self.refuse("a PAX record that is none"));
        }
        Ok(pax)
    }

    fn member(&mut self, header: &Header, kind: u8, size: u64, ahead: Ahead) -> Result<Member, TreeError> {
        let Ahead { long_name, long_link, pax } = ahead;
        let Pax { path, link, size: told, xattrs } = pax.unwrap_or_default();
        let name = self.one(path, long_name)?.unwrap_or_else(|| own_name(header));
        let link = self.one(link, long_link)?.unwrap_or_else(|| header.text(157, 100).to_vec());
        self.at.clone_from(&name);
        let size = match told {
            Some(told) if told != size && !(size == 0 && told >= OCTAL_END) => {
                return Err(self.refuse("two sizes for one member"));
            }
            Some(told) => told,
            None => size,
        };
        // Before there were folders, a file with a slash behind its name was one.
        let file = matches!(kind, flag::FILE | flag::OLD_FILE);
        let folder = kind == flag::FOLDER || (file && name.ends_with(b"/"));
        if size > 0 && (folder || !file) {
            return Err(self.refuse("content where there can be none"));
        }
        let path = clean(&name, folder)?;
        let bits = decode_number(header.field(100, 8)).ok_or_else(|| self.refuse("a mode that is none"))?;
        let (executable, special) = mode(bits);
        let mut notice = special.or(xattrs.then_some(NoticeReason::Xattr));
        let kind = match kind {
            _ if folder => MemberKind::Folder,
            flag::FILE | flag::OLD_FILE => MemberKind::File { size, executable },
            flag::LINK => {
                check_target(&name, &link)?;
                MemberKind::Link { target: link }
            }
            flag::HARD_LINK => {
                notice = Some(NoticeReason::HardLink);
                MemberKind::HardLink { target: clean(&link, false)? }
            }
            flag::CHARACTER | flag::BLOCK => {
                notice = Some(NoticeReason::Device);
                MemberKind::Nothing
            }
            flag::FIFO => {
                notice = Some(NoticeReason::Fifo);
                MemberKind::Nothing
            }
            b'S' => return Err(self.refuse("a sparse file: archive it whole")),
            _ => return Err(self.refuse("a member of an unknown kind")),
        };
        self.stand_before(size);
        Ok(Member { path, kind, notice })
    }

    /// A name may be told in one way beside the header's.
    fn one(&self, pax: Option<Vec<u8>>, long: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, TreeError> {
        match (pax, long) {
            (Some(_), Some(_)) => Err(self.refuse("two names for one member")),
            (name, None) | (None, name) => Ok(name),
        }
    }

    /// After a first block of zeros: a second one, and then zeros only.
    fn end(&mut self) -> Result<(), TreeError> {
        self.at = b"(end)".to_vec();
        if !self.block()?.is_zero() {
            return Err(self.refuse("something follows the end of the archive"));
        }
        let (mut piece, mut tail) = (vec![0; 64 << 10], 0_u64);
        loop {
            let count = self.input.read(&mut piece).map_err(|error| self.read_error(error))?;
            tail += count as u64;
            if count == 0 {
                self.over = true;
                return Ok(());
            }
            if tail > MAX_TAIL || piece.iter().take(count).any(|byte| *byte != 0) {
                return Err(self.refuse("something follows the end of the archive"));
            }
        }
    }
}

impl Ahead {
    fn any(&self) -> bool {
        self.long_name.is_some() || self.long_link.is_some() || self.pax.is_some()
    }
}

/// The name in the header itself: ustar's has a second part.
fn own_name(header: &Header) -> Vec<u8> {
    let (name, prefix) = (header.text(0, 100), header.text(345, 155));
    if header.field(257, 6) == b"ustar\0" && !prefix.is_empty() {
        return [prefix, b"/", name].concat();
    }
    name.to_vec()
}

/// `length key=value\n`, where the length counts itself: key, value and what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(bytes.get(..space)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits =
        !text.is_empty() && text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text.first() != Some(&b'0'));
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// What a file system keeps beside a file.
fn is_attribute(key: &[u8]) -> bool {
    let kinds: [&[u8]; 6] =
        [b"SCHILY.xattr.", b"LIBARCHIVE.xattr.", b"SCHILY.acl.", b"SCHILY.fflags", b"RHT.security.", b"MSWINDOWS."];
    kinds.iter().any(|kind| key.starts_with(kind))
}

struct Content<'a, R>(&'a mut TarReader<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.0.left).unwrap_or(usize::MAX).min(out.len());
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.0.input.read(out.get_mut(..wanted).unwrap_or_default())?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.left -= count as u64;
        Ok(count)
    }
}
