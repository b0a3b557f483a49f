//! What is printed: data on standard output, everything else on standard error. The only file that prints.
//!
//! A reader that has seen enough (`… | head`) is no error: the pipe is found closed, the rest is dropped, and
//! the exit code still says what became of the command. Colours and widths are for terminals only, and
//! `NO_COLOR` switches colours off there too.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table, presets};

use super::exit::Exit;

/// How a text is shown where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Style {
    #[default]
    Plain,
    Strong,
    Quiet,
    Good,
    Warn,
    Bad,
    Accent,
}

impl Style {
    const fn ansi(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Quiet => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Accent => "\x1b[36m",
        }
    }

    fn cell(self, text: &str) -> Cell {
        let cell = Cell::new(text);
        match self {
            Self::Plain => cell,
            Self::Strong => cell.add_attribute(Attribute::Bold),
            Self::Quiet => cell.add_attribute(Attribute::Dim),
            Self::Good => cell.fg(Color::DarkGreen),
            Self::Warn => cell.fg(Color::DarkYellow),
            Self::Bad => cell.fg(Color::DarkRed),
            Self::Accent => cell.fg(Color::DarkCyan),
        }
    }
}

/// Whether texts get colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint(bool);

impl Paint {
    pub(super) fn text(self, style: Style, text: impl fmt::Display) -> String {
        if self.0 && style != Style::Plain {
            format!("{}{text}\x1b[0m", style.ansi())
        } else {
            text.to_string()
        }
    }
}

/// Rows below a quiet header. Without a header: pairs and lists.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    header: Vec<String>,
    rows: Vec<Vec<(String, Style)>>,
    indent: usize,
}

impl Sheet {
    pub(super) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|text| (*text).to_owned()).collect(), ..Self::default() }
    }

    /// Without a header.
    pub(super) fn bare() -> Self {
        Self::default()
    }

    /// Every line begins with `indent` spaces.
    pub(super) fn indented(mut self, indent: usize) -> Self {
        self.indent = indent;
        self
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [(&str, Style); N]) {
        self.rows.push(cells.into_iter().map(|(text, style)| (one_line(text), style)).collect());
    }

    /// A row of a quiet name and its value.
    pub(super) fn pair(&mut self, name: &str, value: impl fmt::Display) {
        self.row([(name, Style::Quiet), (&value.to_string(), Style::Plain)]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn render(&self, stream: &Stream) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let styled = |style: Style, text: &str| {
            if stream.paint.0 { style.cell(text) } else { Cell::new(text) }
        };
        if !self.header.is_empty() {
            table.set_header(self.header.iter().map(|text| styled(Style::Quiet, text)).collect::<Vec<_>>());
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|(text, style)| styled(*style, text)).collect::<Vec<_>>());
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if stream.kind == Kind::Err {
            table.use_stderr();
        }
        match (stream.terminal, table.width()) {
            // A list of names and values is left to the terminal: what is copied from it must be whole.
            (true, Some(width)) if !self.header.is_empty() => {
                let room = width.saturating_sub(u16::try_from(self.indent).unwrap_or(0));
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(room);
            }
            _ => drop(table.force_no_tty()),
        }
        if stream.paint.0 {
            table.enforce_styling();
        }
        let margin = " ".repeat(self.indent);
        table.lines().map(|line| format!("{margin}{}\n", trimmed(&line))).collect()
    }
}

/// A line without the spaces that only fill its last column, which a colour may stand behind.
fn trimmed(line: &str) -> &str {
    line.trim_end()
}

/// A text of somebody else's on one line: its control characters would speak to the terminal, and its
/// direction marks would show it as something that it is not.
pub(super) fn one_line(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Out,
    Err,
}

struct Stream {
    kind: Kind,
    to: Box<dyn Write + Send>,
    terminal: bool,
    paint: Paint,
    closed: bool,
}

impl Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        match self.to.write_all(bytes).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            outcome => outcome,
        }
    }
}

/// Both streams of a command.
pub(super) struct Printer {
    json: bool,
    out: Stream,
    err: Stream,
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Printer").field("json", &self.json).finish_non_exhaustive()
    }
}

impl Printer {
    /// The process's own streams. `json`: data is for programs.
    pub(super) fn new(json: bool) -> Self {
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let stream = |kind, to: Box<dyn Write + Send>, terminal| Stream {
            kind,
            to,
            terminal,
            paint: Paint(terminal && colours),
            closed: false,
        };
        let (out, err) = (io::stdout(), io::stderr());
        let (out_terminal, err_terminal) = (out.is_terminal(), err.is_terminal());
        Self {
            json,
            out: stream(Kind::Out, Box::new(out), out_terminal),
            err: stream(Kind::Err, Box::new(err), err_terminal),
        }
    }

    /// Whether data is for programs.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nobody reads the data any more.
    pub(super) fn is_closed(&self) -> bool {
        self.out.closed
    }

    /// The colours of standard output.
    pub(super) fn paint(&self) -> Paint {
        self.out.paint
    }

    /// The colours of standard error.
    pub(super) fn note_paint(&self) -> Paint {
        self.err.paint
    }

    /// Data: bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write(bytes)
    }

    /// Data: one line.
    pub(super) fn line(&mut self, text: impl fmt::Display) -> io::Result<()> {
        self.out.write(format!("{text}\n").as_bytes())
    }

    /// Data: one JSON document.
    pub(super) fn json(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write(text.trim_ascii_end())?;
        self.out.write(b"\n")
    }

    /// Data: a table.
    pub(super) fn sheet(&mut self, sheet: &Sheet) -> io::Result<()> {
        let text = sheet.render(&self.out);
        self.out.write(text.as_bytes())
    }

    /// A line for people. That standard error is closed is no reason to stop.
    pub(super) fn note(&mut self, text: impl fmt::Display) {
        let _ = self.err.write(format!("{text}\n").as_bytes());
    }

    /// A table for people.
    pub(super) fn note_sheet(&mut self, sheet: &Sheet) {
        let text = sheet.render(&self.err);
        let _ = self.err.write(text.as_bytes());
    }
}

/// Prints what the reader of the arguments has to say: help and the version are data, the rest is not.
pub(super) fn told(told: &clap::Error) -> Exit {
    let mut printer = Printer::new(false);
    let rendered = told.render();
    let (is_data, paint) = match told.use_stderr() {
        true => (false, printer.note_paint()),
        false => (true, printer.paint()),
    };
    let text = if paint.0 { rendered.ansi().to_string() } else { rendered.to_string() };
    let text = text.trim_end();
    if !is_data {
        printer.note(text);
        return Exit::Usage;
    }
    match printer.line(text) {
        Ok(()) => Exit::Done,
        Err(_) => Exit::Failed,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A stream that is kept.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A printer without a terminal, and what it prints on both streams.
    pub(crate) fn kept(json: bool) -> (Printer, Kept, Kept) {
        let (out, err) = (Kept::default(), Kept::default());
        (printer(json, Box::new(out.clone()), Box::new(err.clone()), false), out, err)
    }

    fn printer(json: bool, out: Box<dyn Write + Send>, err: Box<dyn Write + Send>, colours: bool) -> Printer {
        let stream = |kind, to| Stream { kind, to, terminal: false, paint: Paint(colours), closed: false };
        Printer { json, out: stream(Kind::Out, out), err: stream(Kind::Err, err) }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let mut printer = printer(false, Box::new(Closed), Box::new(Closed), false);
        assert!(printer.line("one").is_ok());
        assert!(printer.out.closed);
        assert!(printer.raw(b"two").is_ok());
        printer.note("three");
    }

    #[test]
    fn tables_are_aligned_and_plain_without_a_terminal() {
        let (mut printer, out, _) = kept(false);
        let mut sheet = Sheet::new(&["agent", "rev"]).indented(2);
        sheet.row([("acme/a", Style::Strong), ("1", Style::Plain)]);
        sheet.row([("acme/longer\u{1b}[31m", Style::Bad), ("22", Style::Plain)]);
        printer.sheet(&sheet).unwrap();
        let lines = ["  agent             rev", "  acme/a            1", "  acme/longer [31m  22", ""];
        assert_eq!(out.text(), lines.join("\n"));
    }

    #[test]
    fn texts_of_others_cannot_speak_to_the_terminal() {
        assert_eq!(one_line("a\u{1b}[2Jb\u{9b}c\nd\u{202e}e"), "a [2Jb c d e");
    }

    #[test]
    fn colours_are_there_when_they_are_wanted() {
        let kept = Kept::default();
        let mut printer = printer(false, Box::new(kept.clone()), Box::new(Closed), true);
        let mut sheet = Sheet::bare();
        sheet.row([("x", Style::Bad)]);
        printer.sheet(&sheet).unwrap();
        assert!(kept.text().contains("\u{1b}["), "{:?}", kept.text());
        assert_eq!(printer.paint().text(Style::Good, "y"), "\u{1b}[32my\u{1b}[0m");
        assert_eq!(Paint(false).text(Style::Good, "y"), "y");
    }

    #[test]
    fn json_ends_with_one_line_end() {
        let (mut printer, out, _) = kept(true);
        printer.json(b"{}\n").unwrap();
        printer.json(b"[]").unwrap();
        assert_eq!(out.text(), "{}\n[]\n");
    }
}
