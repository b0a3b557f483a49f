//! `cardfence card inspect`: what a registry would say of a card, without one. A linter for pipelines.

use super::arguments::{Input, read_input, shown};
use super::exit::Exit;
use super::failure::{Failure, failed};
use super::printer::{Printer, Sheet, Style};
use super::resolve::offers;
use crate::card::{Card, Limits, inspect};
use crate::wire::Inspection;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Check a card: its generation, digests and fingerprints, and all that is wrong or odd about it
    Inspect(Input),
}

pub(super) fn run(command: Command, printer: &mut Printer) -> Result<Exit, Failure> {
    let Command::Inspect(input) = command;
    let bytes = read_input(&input.file)?;
    let limits = Limits::default();
    let inspection = Inspection::from(&inspect(&bytes, &limits));
    let usable = inspection.violations.is_empty();
    if printer.is_json() {
        let text = serde_json::to_vec(&inspection).map_err(|error| failed(error.to_string()))?;
        printer.json(&text)?;
    } else {
        let card = Card::check(bytes, &limits).ok();
        print(&shown(&input.file), &inspection, card.as_ref(), printer)?;
    }
    Ok(if usable { Exit::Done } else { Exit::Failed })
}

fn print(
    name: &str,
    inspection: &Inspection,
    card: Option<&Card>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let paint = printer.paint();
    let verdict = match inspection.violations.len() {
        0 => paint.text(Style::Good, "a usable card"),
        1 => paint.text(Style::Bad, "refused, for 1 violation"),
        many => paint.text(Style::Bad, format_args!("refused, for {many} violations")),
    };
    printer.line(format_args!("{}: {verdict}", paint.text(Style::Strong, name)))?;
    printer.line("")?;
    let mut sheet = Sheet::bare().indented(2);
    let unknown = "not defined for this document".to_owned();
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| unknown.clone());
    sheet.pair("generation", text(&inspection.generation));
    let spoken = inspection.spoken_versions.join(", ");
    sheet.pair("speaks", if spoken.is_empty() { "unknown versions".to_owned() } else { spoken });
    sheet.pair("content digest", text(&inspection.content_digest));
    sheet.pair("raw digest", &inspection.raw_digest);
    sheet.pair("skill fingerprint", text(&inspection.skill_fingerprint));
    sheet.pair("negotiation fingerprint", text(&inspection.negotiation_fingerprint));
    printer.sheet(&sheet)?;
    if let Some(card) = card {
        printer.line("")?;
        printer.sheet(&offers(card))?;
    }
    let violations = inspection.violations.iter().map(|v| (&v.pointer, &v.code, &v.message));
    findings("violation", Style::Bad, violations, printer)?;
    let warnings = inspection.warnings.iter().map(|w| (&w.pointer, &w.code, &w.message));
    findings("warning", Style::Warn, warnings, printer)
}

fn findings<'a>(
    what: &str,
    style: Style,
    findings: impl Iterator<Item = (&'a String, &'a String, &'a String)>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut sheet = Sheet::new(&[what, "where", ""]).indented(2);
    for (pointer, code, message) in findings {
        let place = if pointer.is_empty() { "the document" } else { pointer };
        sheet.row([(code, style), (place, Style::Plain), (message, Style::Plain)]);
    }
    if sheet.is_empty() {
        return Ok(());
    }
    printer.line("")?;
    Ok(printer.sheet(&sheet)?)
}
