//! Columns as kubectl prints them: three spaces between, the last one as it comes.

use std::io::{self, Write};

/// Widths that only grow, so that rows printed later stand below the ones before.
#[derive(Debug, Default)]
pub(super) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    /// Makes room for a row.
    pub(super) fn fit<T: AsRef<str>>(&mut self, row: &[T]) {
        self.widths.resize(self.widths.len().max(row.len()), WIDTH_MIN);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.as_ref().chars().count() + GAP);
        }
    }

    /// Prints a row.
    pub(super) fn print<T: AsRef<str>>(&self, row: &[T], out: &mut dyn Write) -> io::Result<()> {
        let Some((last, cells)) = row.split_last() else { return Ok(()) };
        for (cell, width) in cells.iter().zip(&self.widths) {
            write!(out, "{:width$}", cell.as_ref())?;
        }
        writeln!(out, "{}", last.as_ref())
    }
}

const GAP: usize = 3;
const WIDTH_MIN: usize = 6;
