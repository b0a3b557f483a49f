//! How the demo tells what happens. Whatever it claims was checked first: a claim that does not hold ends the
//! demo instead of being printed.

use std::fmt::Display;

use serde_json::json;

use super::super::diff;
use super::super::failure::{Failure, failed};
use super::super::printer::{Printer, Sheet, Style};

/// Where the text of a labelled line begins.
const COLUMN: usize = 14;

/// Where a line ends at the latest, unless one word is longer.
const WIDTH: usize = 100;

/// Tells on standard output: for people, or with `--json` every claim as one line.
pub(super) struct Narrator<'a> {
    printer: &'a mut Printer,
    incident: u8,
}

impl<'a> Narrator<'a> {
    pub(super) fn new(printer: &'a mut Printer) -> Self {
        Self { printer, incident: 0 }
    }

    /// Begins an incident.
    pub(super) fn incident(&mut self, number: u8, title: &str) -> Result<(), Failure> {
        self.incident = number;
        self.people("")?;
        let title = self.printer.paint().text(Style::Strong, format_args!("{number}  {title}"));
        self.people(title)?;
        self.people("")
    }

    /// What is done.
    pub(super) fn act(&mut self, label: &str, text: impl Display) -> Result<(), Failure> {
        self.labelled(label, Style::Quiet, text)
    }

    /// What came of it, if it did.
    pub(super) fn claim(
        &mut self,
        label: &str,
        style: Style,
        holds: bool,
        text: impl Display,
    ) -> Result<(), Failure> {
        let text = text.to_string();
        if self.printer.is_json() {
            let line = json!({"incident": self.incident, "label": label, "claim": text, "holds": holds});
            self.printer.json(line.to_string().as_bytes())?;
        }
        if !holds {
            return Err(failed(format!("incident {}: it does not hold that {text}", self.incident)));
        }
        self.labelled(label, style, text)
    }

    /// The lines of a unified diff that differ.
    pub(super) fn diff(&mut self, unified: &str) -> Result<(), Failure> {
        let paint = self.printer.paint();
        let changed = |line: &&str| {
            (line.starts_with('+') && !line.starts_with("+++"))
                || (line.starts_with('-') && !line.starts_with("---"))
        };
        for line in unified.lines().filter(changed) {
            // Side by side with what replaced it, how deep a line stands says nothing.
            let line = format!("{} {}", &line[..1], line[1..].trim_start());
            self.people(format_args!("{:COLUMN$}  {}", "", diff::painted(&line, paint)))?;
        }
        Ok(())
    }

    pub(super) fn sheet(&mut self, sheet: &Sheet) -> Result<(), Failure> {
        if self.printer.is_json() { Ok(()) } else { Ok(self.printer.sheet(sheet)?) }
    }

    /// A line that is for people only.
    pub(super) fn people(&mut self, text: impl Display) -> Result<(), Failure> {
        if self.printer.is_json() { Ok(()) } else { Ok(self.printer.line(text)?) }
    }

    pub(super) fn strong(&self, text: impl Display) -> String {
        self.printer.paint().text(Style::Strong, text)
    }

    pub(super) fn quiet(&self, text: impl Display) -> String {
        self.printer.paint().text(Style::Quiet, text)
    }

    fn labelled(&mut self, label: &str, style: Style, text: impl Display) -> Result<(), Failure> {
        let label = self.printer.paint().text(style, format_args!("{label:<10}"));
        for (n, line) in wrapped(&text.to_string()).iter().enumerate() {
            match n {
                0 => self.people(format_args!("   {label} {line}"))?,
                _ => self.people(format_args!("{:COLUMN$}{line}", ""))?,
            }
        }
        Ok(())
    }

    /// The printer, for what is no narration.
    pub(super) fn printer(&mut self) -> &mut Printer {
        self.printer
    }
}

/// A text in lines that fit behind a label.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if COLUMN + line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::super::printer::tests::kept;
    use super::*;

    #[test]
    fn a_claim_that_does_not_hold_is_no_line_but_an_error() {
        let (mut printer, out, _) = kept(false);
        let mut told = Narrator::new(&mut printer);
        told.incident(1, "Something").unwrap();
        assert!(told.claim("refused", Style::Good, true, "what is so").is_ok());
        let error = told.claim("refused", Style::Good, false, "what is not so").unwrap_err();
        assert_eq!(error.to_string(), "incident 1: it does not hold that what is not so");
        assert_eq!(out.text(), "\n1  Something\n\n   refused    what is so\n");
    }

    #[test]
    fn programs_get_every_claim_and_nothing_else() {
        let (mut printer, out, _) = kept(true);
        let mut told = Narrator::new(&mut printer);
        told.incident(2, "Something").unwrap();
        told.act("caller", "resolve").unwrap();
        told.claim("refused", Style::Good, true, "so").unwrap();
        assert!(told.claim("refused", Style::Good, false, "not so").is_err());
        let lines: Vec<serde_json::Value> =
            out.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["holds"], &lines[1]["holds"]), (&true.into(), &false.into()));
    }

    #[test]
    fn long_lines_go_on_behind_the_label() {
        let text = "word ".repeat(40);
        let lines = wrapped(text.trim_end());
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| COLUMN + line.len() <= WIDTH), "{lines:?}");
        assert_eq!(lines.join(" "), text.trim_end());
    }
}
