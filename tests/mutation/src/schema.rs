//! The tree with all mutants in it: rendered from the sources, and freed of those that the compiler
//! refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::points::Mutant;
use crate::source::Source;

/// A file with its mutants, and what of it belongs to which of them.
pub struct Rendered {
    pub text: String,
    /// `(start, end, id)` of what each stands around, itself included; bytes of `text`.
    whole: Vec<(usize, usize, u32)>,
    /// The same of what each has in the original's place.
    broken: Vec<(usize, usize, u32)>,
}

/// Puts all mutants of one file into it.
pub fn render(source: &Source, mutants: &[&Mutant]) -> Rendered {
    // At one place what ends comes first, the inner before the outer; then what begins, the other
    // way round. `order` tells those apart that stand around the same.
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
    /// Whose fault an error there is: of the one whose words it points at, else of the nearest
    /// around.
    pub fn culprit(&self, start: usize, end: usize) -> Option<u32> {
        let nearest = |all: &[(usize, usize, u32)]| {
            let around = all.iter().filter(|it| it.0 <= start && end <= it.1);
            around.min_by_key(|it| it.1 - it.0).map(|it| it.2)
        };
        nearest(&self.broken).or_else(|| nearest(&self.whole))
    }

    /// Those around an error that points at none: on its line, or on the lines about.
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

/// Writes a file unless it is so already: what did not change is not built again. Says whether it
/// was another.
pub fn write(path: &Path, text: &[u8]) -> bool {
    if fs::read(path).is_ok_and(|old| old == text) {
        return false;
    }
    fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("folders are made");
    fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    true
}
