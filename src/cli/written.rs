//! How a register, a retirement or a rollback is told, and changes in general.

use super::client::Answer;
use super::failure::Failure;
use super::printer::{Paint, Printer, Sheet, Style, one_line};
use crate::wire::{Change, Registered};

/// Prints the answer to a write.
pub(super) fn print(answer: &Answer, printer: &mut Printer) -> Result<(), Failure> {
    let written: Registered = answer.read()?;
    for warning in &written.warnings {
        let paint = printer.note_paint();
        let place = if warning.pointer.is_empty() { "the document" } else { &warning.pointer };
        let told = one_line(&format!("{} at {place}: {}", warning.code, warning.message));
        printer.note(format_args!("{} {told}", paint.text(Style::Warn, "warning:")));
    }
    if printer.is_json() {
        return Ok(printer.json(&answer.body)?);
    }
    let paint = printer.paint();
    printer.line(headline(&written, paint))?;
    if let Some(change) = &written.change {
        printer.line("")?;
        printer.sheet(&items(change).indented(2))?;
    }
    printer.line("")?;
    let mut sheet = Sheet::bare().indented(2);
    let facts = [
        ("position", &written.position),
        ("generation", &written.generation),
        ("card version", &written.card_version),
        ("content digest", &written.content_digest),
        ("raw digest", &written.raw_digest),
        ("skill fingerprint", &written.skill_fingerprint),
        ("negotiation fingerprint", &written.negotiation_fingerprint),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            sheet.pair(name, value);
        }
    }
    Ok(printer.sheet(&sheet)?)
}

fn headline(written: &Registered, paint: Paint) -> String {
    let Registered { agent, revision, outcome, .. } = written;
    let agent = paint.text(Style::Strong, agent);
    let mut line = match (written.dry_run, outcome.as_str()) {
        (false, "unchanged") => format!("unchanged: {agent} is at revision {revision} with these bytes"),
        (true, "unchanged") => format!("nothing would change: {agent} is at revision {revision}"),
        (true, outcome) => format!("{agent} would be {outcome}: revision {revision}"),
        (false, outcome) => format!("{outcome} {agent}: revision {revision}"),
    };
    if let Some(change) = &written.change {
        line.push_str(&format!(", {}", class(change, paint)));
    }
    if written.superseded {
        let told = "answered from before: a later revision is current";
        line.push_str(&format!(" ({})", paint.text(Style::Warn, told)));
    }
    line
}

/// A change's class, and whether it came silently.
pub(super) fn class(change: &Change, paint: Paint) -> String {
    let named = paint.text(class_style(&change.class), &change.class);
    if change.silent {
        format!("{named} and {} (the card's version did not move)", paint.text(Style::Bad, "silent"))
    } else {
        named
    }
}

pub(super) fn class_style(class: &str) -> Style {
    match class {
        "breaking" => Style::Bad,
        "additive" => Style::Good,
        _ => Style::Quiet,
    }
}

/// The items of a change.
pub(super) fn items(change: &Change) -> Sheet {
    let mut sheet = Sheet::bare();
    for item in &change.items {
        sheet.row([
            (&item.class, class_style(&item.class)),
            (&item.kind.replace('_', " "), Style::Plain),
            (&item.subject, Style::Strong),
            (&item.pointer, Style::Quiet),
        ]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::super::printer::tests::kept;
    use super::*;

    const UPDATED: &str = r#"{"agent":"acme/a","outcome":"updated","revision":2,"position":"2.9f86d081884c7d65",
        "content_digest":"sha256:aa","raw_digest":"sha256:bb","skill_fingerprint":"cc","negotiation_fingerprint":"dd",
        "card_version":"1.0","generation":"v1.0","change":{"class":"breaking","silent":true,"items":[
        {"kind":"skill_removed","class":"breaking","pointer":"/skills/0","subject":"summarize-v2"}]},
        "warnings":[{"code":"url_relative","pointer":"/url","message":"odd"}],"superseded":false,"dry_run":false}"#;

    fn answer(body: &'static str) -> Answer {
        Answer {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn a_silent_change_is_told_as_one_and_warnings_stay_off_the_data() {
        let (mut printer, out, err) = kept(false);
        print(&answer(UPDATED), &mut printer).unwrap();
        let told = out.text();
        for part in [
            "updated acme/a: revision 2, breaking and silent",
            "breaking  skill removed  summarize-v2  /skills/0",
            "content digest           sha256:aa",
        ] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
        assert_eq!(err.text(), "warning: url_relative at /url: odd\n");
    }

    #[test]
    fn programs_get_the_answer_as_it_came() {
        let (mut printer, out, _) = kept(true);
        print(&answer(UPDATED), &mut printer).unwrap();
        assert_eq!(out.text().trim_end(), UPDATED);
    }
}
