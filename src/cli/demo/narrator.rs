//! How the demo tells what happens. Whatever it claims was checked first: a claim that does not hold ends the
//! demo instead of being printed.

use std::fmt::Display;

use serde_json::json;

use super::super::diff;
use super::super::failure::{Failure, failed};
use super::super::printer::{Printer, Sheet, Style};

/// Where the text of a labelled line begins.
const COLUMN: usize = 14;

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
            self.people(format_args!("{:COLUMN$}  {}", "", diff::painted(line, paint)))?;
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
        self.people(format_args!("   {label} {text}"))
    }

    /// The printer, for what is no narration.
    pub(super) fn printer(&mut self) -> &mut Printer {
        self.printer
    }
}
