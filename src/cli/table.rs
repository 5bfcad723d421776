//! Columns as kubectl prints them: with three spaces between them, the last one unpadded. Control
//! characters are escaped: names and messages come from nodes and runtimes.

use std::io::{self, Write};

use crate::io::log::printable;

/// Widths only grow, so that later rows align with earlier ones.
#[derive(Debug, Default)]
pub(super) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    /// Makes room for a row.
    pub(super) fn fit<T: AsRef<str>>(&mut self, row: &[T]) {
        self.widths.resize(self.widths.len().max(row.len()), WIDTH_MIN);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(printable(cell.as_ref()).chars().count() + GAP);
        }
    }

    /// Makes room for all rows, and prints them. `from`: how many cells of each are left out.
    pub(super) fn print_all<R, T>(
        &mut self,
        rows: &[R],
        from: usize,
        out: &mut dyn Write,
    ) -> io::Result<()>
    where
        R: AsRef<[T]>,
        T: AsRef<str>,
    {
        for row in rows {
            self.fit(&row.as_ref()[from..]);
        }
        rows.iter().try_for_each(|row| self.print(&row.as_ref()[from..], out))
    }

    /// Prints a row.
    pub(super) fn print<T: AsRef<str>>(&self, row: &[T], out: &mut dyn Write) -> io::Result<()> {
        let Some((last, cells)) = row.split_last() else { return Ok(()) };
        for (cell, width) in cells.iter().zip(&self.widths) {
            write!(out, "{:width$}", printable(cell.as_ref()))?;
        }
        writeln!(out, "{}", printable(last.as_ref()))
    }
}

const GAP: usize = 3;
const WIDTH_MIN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_commands_no_terminal() {
        let (mut columns, row) = (Columns::default(), ["a\u{1b}[1m", "b\u{202e}\n"]);
        columns.fit(&row);
        let mut out = Vec::new();
        columns.print(&row, &mut out).expect("memory takes what is written");
        assert_eq!(String::from_utf8(out).expect("text"), "a\\u{1b}[1m   b\\u{202e}\\n\n");
    }
}
