//! The files of the tree, as in the checkout, and which rule applies to which.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Complaints;

/// A file of the tree; the path is relative to the top.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) executable: bool,
}

/// Fails with every complaint of `rule` about the files that it `concerns`, and also if there is no
/// such file: a rule over no file checks nothing.
pub(crate) fn hold(concerns: impl Fn(&File) -> bool, rule: impl Fn(&File) -> Complaints) {
    let files = all();
    let concerned: Vec<&File> = files.iter().filter(|file| concerns(file)).collect();
    assert!(!concerned.is_empty(), "the rule concerns no file of {}", files.len());
    let found: Vec<String> = concerned
        .iter()
        .flat_map(|f| rule(f).into_iter().map(|(line, what)| format!("{}:{line}: {what}", f.path)))
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every file of the tree that is text.
pub(crate) fn all() -> Vec<File> {
    let mut files = Vec::new();
    read_tree(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut files);
    files
}

fn read_tree(folder: &Path, below: &str, files: &mut Vec<File>) {
    const BUILT: [&str; 6] =
        [".git", "target", ".cross", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries.map(|entry| entry.expect("the folder can be read")) {
        let name = entry.file_name().into_string().expect("names here are UTF-8");
        let path = format!("{below}{name}");
        let about = entry.metadata().expect("the entry is still there");
        if BUILT.contains(&path.as_str()) || about.is_symlink() {
            continue;
        }
        if about.is_dir() {
            read_tree(&entry.path(), &format!("{path}/"), files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            let executable = about.permissions().mode() & 0o111 != 0;
            files.push(File { path, text, executable });
        }
    }
}

pub(crate) fn is_rust(path: &str) -> bool {
    extension(path) == "rs" && (path.starts_with("src/") || path.starts_with("tests/"))
}

pub(crate) fn is_script(path: &str) -> bool {
    path == ".ci/run" || (path.starts_with("scripts/") && matches!(extension(path), "" | "sh"))
}

pub(crate) fn is_code(path: &str) -> bool {
    let is_page = path.starts_with("src/") && matches!(extension(path), "css" | "html" | "js");
    is_rust(path) || is_script(path) || extension(path) == "c" || path == "Makefile" || is_page
}

pub(crate) fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, extension)| extension)
}

/// Files of others, kept byte for byte; patches are as diff writes them.
pub(crate) fn is_foreign(path: &str) -> bool {
    path == "LICENSE"
        || path.ends_with("Cargo.lock")
        || extension(path) == "patch"
        || path.contains("golden/")
}
