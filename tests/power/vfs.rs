//! The disk as SQLite sees it: a VFS named `NAME`, which behaves like SQLite's own one on Linux,
//! as far as syncs and names are concerned.
#![expect(unsafe_code, reason = "SQLite's interface to file systems is C's")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::path::Path;

use edged::io::disk::TestVfs;
use rusqlite::ffi;

use crate::disk::{FaultyDisk, Inode, Refusal};

/// The name of the VFS.
const NAME: &str = "power";
const NAME_C: &CStr = c"power";

thread_local! {
    static DISK: RefCell<FaultyDisk> = RefCell::new(FaultyDisk::new(0));
}

/// Calls a function with the disk.
pub fn with<T>(act: impl FnOnce(&mut FaultyDisk) -> T) -> T {
    DISK.with_borrow_mut(act)
}

/// The same for edged's store.
pub const VFS: TestVfs = TestVfs { name: NAME, rewrite, remove };

fn rewrite(path: &Path) -> io::Result<()> {
    of_rust(with(|disk| disk.rewrite(name_of(path))))
}

fn remove(path: &Path) -> io::Result<()> {
    of_rust(with(|disk| match disk.find(name_of(path)) {
        None => Ok(()),
        Some(_) => disk.delete(name_of(path)).map(|()| disk.sync_names()),
    }))
}

fn name_of(path: &Path) -> &str {
    path.to_str().expect("the test's names are UTF-8")
}

fn of_rust(done: Result<(), Refusal>) -> io::Result<()> {
    done.map_err(|refusal| io::Error::other(format!("{refusal:?}")))
}

/// Inserts another disk, and lets SQLite seed its random generator from it.
pub fn insert(disk: FaultyDisk) {
    with(|old| *old = disk);
    // SAFETY: a length of 0 means that nothing is written, whatever the pointer.
    unsafe { ffi::sqlite3_randomness(0, std::ptr::null_mut()) };
}

/// Registers the VFS, which is also SQLite's source of randomness. Once per process.
pub fn register() {
    let vfs = ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: size_of::<Open>() as c_int,
        mxPathname: 512,
        pNext: std::ptr::null_mut(),
        zName: NAME_C.as_ptr(),
        pAppData: std::ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_path),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    };
    // SAFETY: the structure lives as long as the process, and so does its name.
    let done = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 1) };
    assert_eq!(done, ffi::SQLITE_OK);
}

/// An open file, in memory that SQLite provides.
#[repr(C)]
struct Open {
    base: ffi::sqlite3_file,
    inode: Inode,
    /// Whether the first sync also makes the name durable.
    names: c_int,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

fn code(result: Result<(), Refusal>, failed: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(Refusal::Full) => ffi::SQLITE_FULL,
        Err(Refusal::Failed) => failed,
    }
}

/// SAFETY: SQLite's names are C strings that live through the call.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    // SAFETY: as above.
    unsafe { CStr::from_ptr(name) }.to_str().expect("the test's names are UTF-8")
}

/// SAFETY: SQLite passes the memory that `open` filled.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    // SAFETY: as above; one connection, one thread.
    unsafe { &mut *file.cast::<Open>() }
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite provided `szOsFile` bytes.
    unsafe { (*file).pMethods = std::ptr::null() };
    assert!(!name.is_null(), "temporary files are to be in memory");
    // SAFETY: see `text`.
    let name = unsafe { text(name) };
    let journal = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    // Whether it is new or not: a killed process may have created it.
    let names = create && journal;
    let found = with(|disk| match disk.find(name) {
        None if create => disk.create(name).ok(),
        found => found,
    });
    let Some(inode) = found else { return ffi::SQLITE_CANTOPEN };
    let base = ffi::sqlite3_file { pMethods: &raw const METHODS };
    // SAFETY: the memory is large enough, and aligned as all of SQLite's memory.
    unsafe { file.cast::<Open>().write(Open { base, inode, names: names.into() }) };
    if !out.is_null() {
        // SAFETY: SQLite's place for the flags.
        unsafe { *out = flags };
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    len: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see `opened`; `into` has room for `len` bytes.
    let (file, into) =
        unsafe { (opened(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), len as usize)) };
    match with(|disk| disk.read(file.inode, at as usize, into)) {
        Ok(read) if read == into.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see `opened`; `from` has `len` bytes.
    let (file, from) =
        unsafe { (opened(file), std::slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    let written = with(|disk| disk.write(file.inode, at as usize, from));
    code(written, ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, len: ffi::sqlite3_int64) -> c_int {
    // SAFETY: see `opened`.
    let file = unsafe { opened(file) };
    let done = with(|disk| disk.truncate(file.inode, len as usize));
    code(done, ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: see `opened`.
    let file = unsafe { opened(file) };
    let synced = with(|disk| disk.sync(file.inode, file.names != 0));
    if synced.is_ok() {
        file.names = 0;
    }
    code(synced, ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, into: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: see `opened`.
    let file = unsafe { opened(file) };
    match with(|disk| disk.len(file.inode)) {
        Ok(len) => {
            // SAFETY: SQLite's place for the size.
            unsafe { *into = len as i64 };
            ffi::SQLITE_OK
        }
        Err(_) => ffi::SQLITE_IOERR_FSTAT,
    }
}

/// One connection needs no lock.
unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn reserved(_: *mut ffi::sqlite3_file, held: *mut c_int) -> c_int {
    // SAFETY: SQLite's place for the result.
    unsafe { *held = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

/// The value of SQLite's own VFS on Linux.
unsafe extern "C" fn sector(_: *mut ffi::sqlite3_file) -> c_int {
    4_096
}

/// Likewise: bytes that a write does not cover stay, even in the same sector.
unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, names: c_int) -> c_int {
    // SAFETY: see `text`.
    let name = unsafe { text(name) };
    let deleted = with(|disk| {
        if disk.find(name).is_none() && !disk.is_dead() {
            return None;
        }
        let deleted = disk.delete(name);
        if deleted.is_ok() && names != 0 {
            disk.sync_names();
        }
        Some(deleted)
    });
    deleted.map_or(ffi::SQLITE_IOERR_DELETE_NOENT, |done| code(done, ffi::SQLITE_IOERR_DELETE))
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    into: *mut c_int,
) -> c_int {
    // SAFETY: see `text`; `into` is SQLite's place for the result.
    unsafe {
        let name = text(name);
        *into = with(|disk| disk.find(name).is_some()).into();
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    into: *mut c_char,
) -> c_int {
    // SAFETY: see `text`; there is room for `room` bytes.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        assert!(bytes.len() <= room as usize);
        into.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, len: c_int, into: *mut c_char) -> c_int {
    // SAFETY: there is room for `len` bytes.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), len as usize) };
    for byte in into {
        *byte = with(FaultyDisk::bits) as u8;
    }
    len
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

/// Always the same day.
unsafe extern "C" fn time(_: *mut ffi::sqlite3_vfs, into: *mut f64) -> c_int {
    // SAFETY: SQLite's place for the result.
    unsafe { *into = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
