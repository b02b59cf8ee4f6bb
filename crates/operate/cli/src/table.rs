use crate::output::{Colour, Screen};
use crate::terminal::one_line;

/// A table with a header, rows, and column widths that fit the content.
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    /// Creates a cell with a colour.
    pub(crate) fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), colour: None }
    }
}

impl Table {
    pub(crate) fn new(head: impl IntoIterator<Item = &'static str>) -> Self {
        Self { head: head.into_iter().collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table, with a line break after each line.
    pub(crate) fn text(&self, screen: &Screen) -> String {
        let head = self.head.iter().map(|name| Cell::from(name.to_uppercase())).collect();
        let lines: Vec<&Vec<Cell>> = std::iter::once(&head).chain(&self.rows).collect();
        let width = |column: usize| {
            let of = |line: &&Vec<Cell>| line.get(column).map_or(0, |cell| shown(&cell.text).chars().count());
            lines.iter().map(of).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut out = String::new();
        for line in lines {
            let mut blanks = 0;
            for (cell, width) in line.iter().zip(&widths) {
                let text = shown(&cell.text);
                out.push_str(&" ".repeat(blanks));
                out.push_str(&cell.colour.map_or_else(|| text.clone(), |colour| screen.paint(&text, colour)));
                blanks = width.saturating_sub(text.chars().count()) + 2;
            }
            out.push('\n');
        }
        out
    }
}

/// Text of a cell on one line and without control characters, since names are untrusted input.
fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_blanks_at_their_end() {
        let mut table = Table::new(["name", "state"]);
        table.row(["web-0.shop".into(), Cell::coloured("synced", Colour::Good)]);
        table.row(["é".into(), "".into()]);
        assert_eq!(table.text(&Screen::plain()), "NAME        STATE\nweb-0.shop  synced\né           -\n");
        let coloured = table.text(&Screen { colour: true });
        assert!(coloured.contains("web-0.shop  \u{1b}[32msynced\u{1b}[0m\n"), "{coloured:?}");
    }

    #[test]
    fn names_cannot_write_to_the_terminal() {
        let mut table = Table::new(["name"]);
        table.row(["a\n\u{1b}[2Jb".into()]);
        assert_eq!(table.text(&Screen::plain()), "NAME\na  [2Jb\n");
    }
}
