//! The tree with all mutants in it: rendered from the sources, without those that the compiler
//! refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::points::Mutant;
use crate::source::Source;

/// A file with its mutants, and which part belongs to which mutant.
pub struct Rendered {
    pub text: String,
    /// `(start, end, id)` of the range that each surrounds, with itself; bytes of `text`.
    whole: Vec<(usize, usize, u32)>,
    /// The same for the replacement text of each.
    broken: Vec<(usize, usize, u32)>,
}

/// Inserts all mutants of one file.
pub fn render(source: &Source, mutants: &[&Mutant]) -> Rendered {
    // At one position ends come first, inner before outer; then starts, outer before inner. `order`
    // separates those with the same range.
    let mut marks: Vec<(usize, bool, usize, usize)> = Vec::new();
    for (order, mutant) in mutants.iter().enumerate() {
        let (start, end) = mutant.range;
        marks.push((start, true, usize::MAX - end, order));
        marks.push((end, false, usize::MAX - start, usize::MAX - order));
    }
    marks.sort_unstable();
    let mut rendered = Rendered { text: String::new(), whole: Vec::new(), broken: Vec::new() };
    let mut starts = BTreeMap::new();
    let mut done = 0;
    for (at, opens, _, order) in marks {
        let mutant = mutants[if opens { order } else { usize::MAX - order }];
        rendered.text.push_str(&source.text[done..at]);
        done = at;
        let start = rendered.text.len();
        if opens {
            rendered.text.push_str(&mutant.open());
            rendered.broken.push((start, rendered.text.len(), mutant.id));
            starts.insert(mutant.id, start);
        } else {
            rendered.text.push_str(mutant.after);
            rendered.whole.push((starts[&mutant.id], rendered.text.len(), mutant.id));
        }
    }
    rendered.text.push_str(&source.text[done..]);
    rendered
}

impl Rendered {
    /// The mutant that caused an error there: the one whose text it points at, otherwise the
    /// nearest enclosing one.
    pub fn culprit(&self, start: usize, end: usize) -> Option<u32> {
        let nearest = |all: &[(usize, usize, u32)]| {
            let around = all.iter().filter(|it| it.0 <= start && end <= it.1);
            around.min_by_key(|it| it.1 - it.0).map(|it| it.2)
        };
        nearest(&self.broken).or_else(|| nearest(&self.whole))
    }

    /// The mutants around an error that points at none: on its line, or on neighbouring lines.
    pub fn about(&self, start: usize, end: usize) -> BTreeSet<u32> {
        let before = |count| self.text[..start].rmatch_indices('\n').nth(count);
        let behind = |count| self.text[end..].match_indices('\n').nth(count);
        for lines in [0, 2, 10] {
            let from = before(lines).map_or(0, |(at, _)| at);
            let to = behind(lines).map_or(self.text.len(), |(at, _)| end + at);
            let inside = self.whole.iter().filter(|it| from <= it.0 && it.1 <= to);
            let found: BTreeSet<u32> = inside.map(|it| it.2).collect();
            if !found.is_empty() {
                return found;
            }
        }
        BTreeSet::new()
    }
}

/// Writes a file if its content differs: an unchanged file is not built again. Returns whether it
/// was written.
pub fn write(path: &Path, text: &[u8]) -> bool {
    if fs::read(path).is_ok_and(|old| old == text) {
        return false;
    }
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("folders are made");
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    true
}
