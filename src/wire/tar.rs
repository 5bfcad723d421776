//! The heads of a tar archive: POSIX ustar, with the records of pax and the long names of GNU.
//! Contents are the caller's, and so is what a name may be.

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
    /// The contents are the link target of the next member: so many bytes.
    LongLink(u64),
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
    /// Numbers of user and group; `None`: they are no numbers of 32 bits.
    pub owner: Option<(u32, u32)>,
    /// Seconds since 1970; 0 where they are no number.
    pub modified_s: i64,
    pub kind: Kind,
}

/// The type of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// Another name of this other member, as written.
    HardLink(Vec<u8>),
    /// A symbolic link to this target, as written.
    SymbolicLink(Vec<u8>),
    /// A character device: major and minor number.
    Character(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
    /// A named pipe.
    Pipe,
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
    /// The number of a device.
    Device,
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
            Self::Device => f.write_str("got a device without numbers, expected two"),
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
    let target = || until_zero(&block[157..257]).to_vec();
    let device = || (number(&block[329..337]), number(&block[337..345]));
    let kind = match block[156] {
        0 | b'0' | b'7' => Kind::File,
        b'1' => Kind::HardLink(target()),
        b'2' => Kind::SymbolicLink(target()),
        kind @ (b'3' | b'4') => {
            let (Some(major), Some(minor)) = device() else { return Err(Fault::Device) };
            if kind == b'3' { Kind::Character(major, minor) } else { Kind::Block(major, minor) }
        }
        b'5' => Kind::Folder,
        b'6' => Kind::Pipe,
        b'L' => return Ok(Head::LongName(size)),
        b'K' => return Ok(Head::LongLink(size)),
        b'x' => return Ok(Head::More(size)),
        // Records for the whole archive.
        b'g' => return Ok(Head::Skip(size)),
        kind => return Err(Fault::Kind(char::from(kind))),
    };
    // Some write the size of the link's target; no contents follow.
    let size = if kind == Kind::File { size } else { 0 };
    let mode = octal(&block[100..108]).unwrap_or(0) as u32 & 0o7777;
    let owner = number(&block[108..116]).zip(number(&block[116..124]));
    let modified_s = self::size(&block[136..148]).unwrap_or(0) as i64;
    Ok(Head::Entry(Entry { name, size, mode, owner, modified_s, kind }))
}

/// The pax records of the next member, which replace what its head says (POSIX pax(1), «pax
/// Extended Header»; extended attributes as star and GNU tar write them).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pax<'a> {
    /// `path`
    pub name: Option<&'a [u8]>,
    /// `linkpath`
    pub link: Option<&'a [u8]>,
    /// `size`: bytes.
    pub size: Option<u64>,
    /// `uid`
    pub user: Option<u32>,
    /// `gid`
    pub group: Option<u32>,
    /// `mtime`: seconds since 1970, and nanoseconds after them.
    pub modified: Option<(i64, u32)>,
    /// `SCHILY.xattr.NAME`: names and values.
    pub xattrs: Vec<(&'a [u8], &'a [u8])>,
    /// `GNU.sparse.…`: the contents are not those of the file.
    pub is_sparse: bool,
}

/// Reads the pax records of the next member.
pub fn more(records: &[u8]) -> Result<Pax<'_>, Fault> {
    let mut pax = Pax::default();
    let mut rest = records;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or(Fault::Records)?;
        let length: usize = decimal(&rest[..space])?;
        let record = rest.get(space + 1..length).ok_or(Fault::Records)?;
        let record = record.strip_suffix(b"\n").ok_or(Fault::Records)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(Fault::Records)?;
        let value = &record[equals + 1..];
        match &record[..equals] {
            b"path" | b"linkpath" if value.len() > NAME_MAX => {
                return Err(Fault::Name(value.len()));
            }
            b"path" => pax.name = Some(value),
            b"linkpath" => pax.link = Some(value),
            b"size" => pax.size = Some(decimal(value)?),
            b"uid" => pax.user = Some(decimal(value)?),
            b"gid" => pax.group = Some(decimal(value)?),
            b"mtime" => pax.modified = Some(moment(value).ok_or(Fault::Records)?),
            key if key.starts_with(b"GNU.sparse.") => pax.is_sparse = true,
            key => {
                let name = key.strip_prefix(b"SCHILY.xattr.");
                pax.xattrs.extend(name.map(|name| (name, value)));
            }
        }
        rest = &rest[length..];
    }
    Ok(pax)
}

fn decimal<T: core::str::FromStr>(text: &[u8]) -> Result<T, Fault> {
    let text = core::str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Fault::Records)
}

/// `-1.5` is half a second after -2.
fn moment(text: &[u8]) -> Option<(i64, u32)> {
    let text = core::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = fraction.bytes().chain([b'0'; 9]).take(9);
    let nanos = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
        _ => Some((seconds, nanos)),
    }
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

/// As [`size`], of 32 bits; 0 where the field is empty.
fn number(field: &[u8]) -> Option<u32> {
    if field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return Some(0);
    }
    u32::try_from(size(field)?).ok()
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
        entry(name, size, Kind::File)
    }

    fn entry(name: &str, size: u64, kind: Kind) -> Head {
        let (owner, modified_s) = (Some((0, 0)), 0);
        Head::Entry(Entry { name: name.into(), size, mode: 0, owner, modified_s, kind })
    }

    #[test]
    fn heads_are_read() {
        assert_eq!(head(&block("a/b", "00000000017\0", b'0', "")), Ok(file("a/b", 15)));
        assert_eq!(head(&block("a", "0", 0, "")), Ok(file("a", 0)));
        let want = |kind| Ok(entry("a", 0, kind));
        let link = b"../b".to_vec();
        assert_eq!(head(&block("a", "17", b'1', "../b")), want(Kind::HardLink(link.clone())));
        assert_eq!(head(&block("a", "17", b'2', "../b")), want(Kind::SymbolicLink(link)));
        assert_eq!(head(&block("a", "0", b'6', "")), want(Kind::Pipe));
        let mut device = block("a", "0", b'3', "");
        device[329..336].copy_from_slice(b"0000005");
        device[337..344].copy_from_slice(b"0000012");
        seal(&mut device);
        assert_eq!(head(&device), want(Kind::Character(5, 10)));
        device[156] = b'4';
        seal(&mut device);
        assert_eq!(head(&device), want(Kind::Block(5, 10)));
        assert_eq!(head(&block("././@LongLink", "24", b'K', "")), Ok(Head::LongLink(20)));
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
    fn owner_and_time_are_read() {
        let mut owned = block("a", "0", b'0', "");
        owned[108..115].copy_from_slice(b"0001750");
        owned[116..124].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xfe]);
        owned[136..147].copy_from_slice(b"14000000000");
        seal(&mut owned);
        let Ok(Head::Entry(read)) = head(&owned) else { panic!("no entry") };
        assert_eq!((read.owner, read.modified_s), (Some((1_000, u32::MAX - 1)), 0o14_000_000_000));
        for no_number in [&b"999"[..], &[0x80, 0, 0, 1, 0, 0, 0, 0], &[0xff; 8]] {
            owned[108..116].fill(0);
            owned[108..108 + no_number.len()].copy_from_slice(no_number);
            seal(&mut owned);
            let Ok(Head::Entry(read)) = head(&owned) else { panic!("no entry") };
            assert_eq!(read.owner, None, "{no_number:?}");
        }
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
        let want = Pax {
            name: Some(b"a/b"),
            modified: Some((1, 250_000_000)),
            size: Some(9),
            ..Pax::default()
        };
        assert_eq!(more(&records[..26]), Ok(Pax { size: None, ..want.clone() }));
        assert_eq!(more(&[&records[..26], b"10 size=9\n"].concat()), Ok(want));
        for wrong in [&b"x"[..], b"99 path=a\n", b"0 path=a\n", b"9 path=a\n x", b"8 path a\n"] {
            assert!(more(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn pax_records_that_are_no_text_are_read() {
        let xattr = b"29 SCHILY.xattr.user.a=\x02\0\xff\xfe\n\n";
        let records = [&xattr[..], b"10 size=9\n"].concat();
        let xattrs = vec![(&b"user.a"[..], &b"\x02\0\xff\xfe\n"[..])];
        assert_eq!(more(&records), Ok(Pax { xattrs, size: Some(9), ..Pax::default() }));
        assert_eq!(more(b"10 path=\xff\n").map(|pax| pax.name), Ok(Some(&b"\xff"[..])));
        assert!(more(b"10 size=\xff\n").is_err());
    }

    #[test]
    fn pax_records_say_what_a_head_has_no_room_for() {
        let records = b"20 linkpath=../../b\n14 uid=100000\n10 gid=70\n25 GNU.sparse.realsize=9\n";
        let want = Pax {
            link: Some(b"../../b"),
            user: Some(100_000),
            group: Some(70),
            is_sparse: true,
            ..Pax::default()
        };
        assert_eq!(more(records), Ok(want));
        assert!(more(b"18 uid=5000000000\n").is_err());
        let long = [b"4113 linkpath=".as_slice(), &[b'a'; NAME_MAX + 2], b"\n"].concat();
        assert_eq!(more(&long), Err(Fault::Name(NAME_MAX + 2)));
    }

    #[test]
    fn times_have_fractions() {
        for (text, want) in [
            ("1", Some((1, 0))),
            ("1.25", Some((1, 250_000_000))),
            ("1.1234567899", Some((1, 123_456_789))),
            ("-1.5", Some((-2, 500_000_000))),
            ("-0.5", Some((-1, 500_000_000))),
            ("-3", Some((-3, 0))),
            ("", None),
            ("1.x", None),
            ("1.-5", None),
        ] {
            assert_eq!(moment(text.as_bytes()), want, "{text}");
        }
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
        let entry = |name: &str, size, mode, kind| {
            let (owner, modified_s) = (Some((0, 0)), 1);
            Head::Entry(Entry { name: name.into(), size, mode, owner, modified_s, kind })
        };
        for size in [0, 1, (1 << 33) - 1, 1 << 33, 1 << 40] {
            let bytes = written(&Written { size, ..of("a") });
            let entry = entry("a", size, 0o644, Kind::File);
            assert_eq!((bytes.len(), read(&bytes)), (BLOCK, Ok(entry)));
        }
        let bytes = written(&Written { is_folder: true, mode: 0o755, ..of("d") });
        assert_eq!(read(&bytes), Ok(entry("d", 0, 0o755, Kind::Folder)));
        let bytes = written(&Written { link: Some(b"../b"), ..of("l") });
        let kind = Kind::SymbolicLink(b"../b".to_vec());
        assert_eq!(read(&bytes), Ok(entry("l", 0, 0o644, kind)));
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
