//! The heads of a tar archive: POSIX ustar, with the long names of pax and GNU. Contents are the
//! caller's, and so is what a name may be.

use std::fmt;

/// Bytes of a head, and the padding unit of contents.
pub const BLOCK: usize = 512;
/// The longest name, also of one in a separate entry.
pub const NAME_MAX: usize = 4096;

/// One head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A member.
    Entry(Entry),
    /// The contents are the name of the next member: so many bytes.
    LongName(u64),
    /// The contents describe the next member (pax): so many bytes.
    More(u64),
    /// Contents that do not describe a member: so many bytes.
    Skip(u64),
    /// The end of the archive.
    End,
}

/// A member of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As written, in any encoding; not a path to open.
    pub name: Vec<u8>,
    /// Bytes of its contents.
    pub size: u64,
    /// Permissions; 0 where they are no number.
    pub mode: u32,
    pub kind: Kind,
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link to this other member, as written.
    Link(String),
    /// A device, a pipe: nothing to read.
    Other,
}

/// Why bytes are not a head, or the records of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The checksum is missing, or another than that of the bytes.
    Checksum { got: Option<u64>, expected: u64 },
    /// The size is not a number.
    Size,
    /// The size of its name.
    Name(usize),
    /// A member of a kind that is not read.
    Kind(char),
    /// Not pax records.
    Records,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksum { got: None, .. } => {
                f.write_str("got a head without a checksum, expected one")
            }
            Self::Checksum { got: Some(got), expected } => {
                write!(f, "got a head whose checksum is {got}, expected {expected}")
            }
            Self::Size => f.write_str("got a head without a size, expected one"),
            Self::Name(bytes) => write!(f, "got a name of {bytes} bytes"),
            Self::Kind(kind) => write!(f, "got a member of the kind {kind:?}"),
            Self::Records => {
                f.write_str("got pax records that are none, expected «length key=value»")
            }
        }
    }
}

/// The position of the next head, after contents of this size that begin at `at`.
pub fn next(at: u64, size: u64) -> Option<u64> {
    let padded = size.checked_next_multiple_of(BLOCK as u64)?;
    at.checked_add(padded)
}

/// Reads a head.
pub fn head(block: &[u8; BLOCK]) -> Result<Head, Fault> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Head::End);
    }
    let got = octal(&block[148..156]);
    let expected: u64 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
        .sum();
    if got != Some(expected) {
        return Err(Fault::Checksum { got, expected });
    }
    let size = size(&block[124..136]).ok_or(Fault::Size)?;
    let mut name = until_zero(&block[..100]).to_vec();
    let prefix = until_zero(&block[345..500]);
    if &block[257..262] == b"ustar" && block[262] == 0 && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let mode = octal(&block[100..108]).unwrap_or(0) as u32 & 0o7777;
    Ok(match block[156] {
        0 | b'0' | b'7' => Head::Entry(Entry { name, size, mode, kind: Kind::File }),
        b'1' | b'2' => {
            // Some write the size of the link's target; no contents follow.
            let target = String::from_utf8_lossy(until_zero(&block[157..257])).into_owned();
            let kind = Kind::Link(target);
            Head::Entry(Entry { name, size: 0, mode, kind })
        }
        b'5' => Head::Entry(Entry { name, size: 0, mode, kind: Kind::Folder }),
        b'3' | b'4' | b'6' => Head::Entry(Entry { name, size: 0, mode, kind: Kind::Other }),
        b'L' => Head::LongName(size),
        b'x' => Head::More(size),
        // A long target of a link, and records for the whole archive.
        b'K' | b'g' => Head::Skip(size),
        kind => return Err(Fault::Kind(char::from(kind))),
    })
}

/// The pax records of the next member: its name and its size.
pub fn more(records: &[u8]) -> Result<(Option<Vec<u8>>, Option<u64>), Fault> {
    let (mut name, mut size) = (None, None);
    let mut rest = records;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or(Fault::Records)?;
        let length = core::str::from_utf8(&rest[..space]).ok().and_then(|text| text.parse().ok());
        let length: usize = length.ok_or(Fault::Records)?;
        let record = rest.get(space + 1..length).ok_or(Fault::Records)?;
        let record = record.strip_suffix(b"\n").ok_or(Fault::Records)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(Fault::Records)?;
        let value = &record[equals + 1..];
        match &record[..equals] {
            b"path" if value.len() <= NAME_MAX => name = Some(value.to_vec()),
            b"path" => return Err(Fault::Name(value.len())),
            b"size" => {
                let number = core::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                size = Some(number.ok_or(Fault::Records)?);
            }
            _ => {}
        }
        rest = &rest[length..];
    }
    Ok((name, size))
}

/// Up to the first zero.
pub fn until_zero(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_start();
    let end = digits.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(digits.len());
    let digits = core::str::from_utf8(&digits[..end]).ok()?;
    u64::from_str_radix(digits, 8).ok()
}

/// Octal digits, or, for more than 8 GiB, a number in base 256.
fn size(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 == 0 {
        return octal(field);
    }
    let (head, tail) = field.split_at(4);
    let small = head == [0x80, 0, 0, 0];
    small.then(|| tail.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// A member that is written. Its owner is root.
#[cfg(feature = "streams")]
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    pub name: &'a [u8],
    /// Bytes of its contents.
    pub size: u64,
    pub mode: u32,
    /// Seconds since 1970.
    pub modified_s: u64,
    /// The target of a symbolic link.
    pub link: Option<&'a [u8]>,
    pub is_folder: bool,
}

/// Appends the head of a member; names longer than its field are written as GNU tar does, which
/// busybox reads as well.
#[cfg(feature = "streams")]
pub fn write_head(member: &Written<'_>, to: &mut Vec<u8>) {
    let link = member.link.unwrap_or_default();
    for (kind, text) in [(b'K', link), (b'L', member.name)] {
        if text.len() > NAME_FIELD {
            let size = text.len() as u64 + 1;
            to.extend_from_slice(&block_of(b"././@LongLink", size, 0o644, 0, kind, b""));
            to.extend_from_slice(text);
            let padded = to.len() + 1;
            to.resize(padded + padding(size), 0);
        }
    }
    let kind = match (member.link, member.is_folder) {
        (Some(_), _) => b'2',
        (None, true) => b'5',
        (None, false) => b'0',
    };
    let Written { name, size, mode, modified_s, .. } = *member;
    to.extend_from_slice(&block_of(name, size, mode, modified_s, kind, link));
}

/// Bytes that follow contents of this size.
#[cfg(feature = "streams")]
pub fn padding(size: u64) -> usize {
    (size.next_multiple_of(BLOCK as u64) - size) as usize
}

#[cfg(feature = "streams")]
fn block_of(
    name: &[u8],
    size: u64,
    mode: u32,
    modified_s: u64,
    kind: u8,
    link: &[u8],
) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    let short = |text: &[u8]| text[..text.len().min(NAME_FIELD)].to_vec();
    put(0, &short(name));
    put(100, format!("{:07o}\0", mode & 0o7777).as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    if size < 1 << 33 {
        put(124, format!("{size:011o}\0").as_bytes());
    } else {
        put(124, &[&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat());
    }
    put(136, format!("{:011o}\0", modified_s.min((1 << 33) - 1)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &short(link));
    put(257, b"ustar\x0000");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Bytes of a name in a head.
#[cfg(feature = "streams")]
const NAME_FIELD: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str, size: &str, kind: u8, link: &str) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..124 + size.len()].copy_from_slice(size.as_bytes());
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..263].copy_from_slice(b"ustar\0");
        seal(&mut block);
        block
    }

    fn seal(block: &mut [u8; BLOCK]) {
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    fn file(name: &str, size: u64) -> Head {
        Head::Entry(Entry { name: name.into(), size, mode: 0, kind: Kind::File })
    }

    #[test]
    fn heads_are_read() {
        assert_eq!(head(&block("a/b", "00000000017\0", b'0', "")), Ok(file("a/b", 15)));
        assert_eq!(head(&block("a", "0", 0, "")), Ok(file("a", 0)));
        let link = Kind::Link("../b".to_owned());
        let want = Head::Entry(Entry { name: "a".into(), size: 0, mode: 0, kind: link });
        assert_eq!(head(&block("a", "17", b'2', "../b")), Ok(want));
        assert_eq!(head(&block("././@LongLink", "24", b'L', "")), Ok(Head::LongName(20)));
        assert_eq!(head(&block("p", "24", b'x', "")), Ok(Head::More(20)));
        assert_eq!(head(&[0; BLOCK]), Ok(Head::End));
        let mut long = block("c", "1", b'0', "");
        long[345..348].copy_from_slice(b"a/b");
        seal(&mut long);
        assert_eq!(head(&long), Ok(file("a/b/c", 1)));
        let mut large = block("c", "", b'0', "");
        large[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1]);
        seal(&mut large);
        assert_eq!(head(&large), Ok(file("c", (2 << 32) + 1)));
    }

    #[test]
    fn what_is_no_head_is_refused() {
        let mut spoilt = block("a", "1", b'0', "");
        spoilt[0] ^= 1;
        let why = |block: &[u8; BLOCK]| head(block).expect_err("no head").to_string();
        assert!(why(&spoilt).contains("checksum"));
        assert!(why(&block("a", "9", b'0', "")).contains("size"));
        assert!(why(&block("a", "1", b'S', "")).contains("kind 'S'"));
        assert!(why(&[b'x'; BLOCK]).contains("checksum"));
        let mut huge = block("c", "", b'0', "");
        huge[124..136].fill(0xff);
        seal(&mut huge);
        assert!(why(&huge).contains("size"));
    }

    #[test]
    fn pax_names_and_sizes_are_read() {
        let records = b"12 path=a/b\n14 mtime=1.25\n11 size=9\n";
        // Lengths count themselves and the end of the line.
        assert_eq!(more(&records[..12]), Ok((Some(b"a/b".to_vec()), None)));
        assert_eq!(more(b"10 size=9\n"), Ok((None, Some(9))));
        for wrong in [&b"x"[..], b"99 path=a\n", b"0 path=a\n", b"9 path=a\n x", b"8 path a\n"] {
            assert!(more(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn pax_records_that_are_no_text_are_passed_over() {
        let acl = b"29 SCHILY.xattr.user.a=\x02\0\xff\xfe\n\n";
        let records = [&acl[..], b"10 size=9\n"].concat();
        assert_eq!(more(&records), Ok((None, Some(9))));
        assert_eq!(more(b"10 path=\xff\n"), Ok((Some(b"\xff".to_vec()), None)));
        assert!(more(b"10 size=\xff\n").is_err());
    }

    #[test]
    fn contents_are_jumped_over_without_overflow() {
        assert_eq!(next(512, 1), Some(1024));
        assert_eq!(next(512, 0), Some(512));
        assert_eq!(next(512, u64::MAX), None);
        assert_eq!(next(u64::MAX - 3, 512), None);
    }

    #[cfg(feature = "streams")]
    #[test]
    fn what_is_written_is_read() {
        let long = "d/".repeat(100) + "name";
        let of = |name: &'static str| Written {
            name: name.as_bytes(),
            size: 0,
            mode: 0o100_644,
            modified_s: 1,
            link: None,
            is_folder: false,
        };
        let written = |member: &Written<'_>| {
            let mut bytes = Vec::new();
            write_head(member, &mut bytes);
            bytes
        };
        let read = |bytes: &[u8]| head(bytes.first_chunk().expect("a block"));
        for size in [0, 1, (1 << 33) - 1, 1 << 33, 1 << 40] {
            let bytes = written(&Written { size, ..of("a") });
            let entry = Entry { name: "a".into(), size, mode: 0o644, kind: Kind::File };
            assert_eq!((bytes.len(), read(&bytes)), (BLOCK, Ok(Head::Entry(entry))));
        }
        let bytes = written(&Written { is_folder: true, mode: 0o755, ..of("d") });
        let entry = Entry { name: "d".into(), size: 0, mode: 0o755, kind: Kind::Folder };
        assert_eq!(read(&bytes), Ok(Head::Entry(entry)));
        let bytes = written(&Written { link: Some(b"../b"), ..of("l") });
        let kind = Kind::Link("../b".to_owned());
        let entry = Entry { name: "l".into(), size: 0, mode: 0o644, kind };
        assert_eq!(read(&bytes), Ok(Head::Entry(entry)));
        let bytes = written(&Written { name: long.as_bytes(), ..of("") });
        assert_eq!(read(&bytes), Ok(Head::LongName(long.len() as u64 + 1)));
        assert_eq!(until_zero(&bytes[BLOCK..2 * BLOCK]), long.as_bytes());
        assert_eq!(bytes.len(), 3 * BLOCK);
        let Ok(Head::Entry(entry)) = read(&bytes[2 * BLOCK..]) else { panic!("no entry") };
        assert_eq!(entry.name, &long.as_bytes()[..NAME_FIELD]);
    }

    #[cfg(feature = "streams")]
    #[test]
    fn contents_are_padded_to_whole_blocks() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
