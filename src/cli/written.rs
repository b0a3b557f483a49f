//! How a register, a retirement or a rollback is told, and changes in general.

use std::time::Duration;

use super::client::Answer;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::{Paint, Printer, Sheet, Style, one_line};
use super::words;
use crate::wire::{Change, Registered, Replicated};

/// Prints the answer to a write. One that was to be replicated and is not is done all the same; how it ended
/// says so.
pub(super) fn print(answer: &Answer, printer: &mut Printer) -> Result<Exit, Failure> {
    let written: Registered = answer.read()?;
    for warning in &written.warnings {
        let paint = printer.note_paint();
        let place = if warning.pointer.is_empty() { "the document" } else { &warning.pointer };
        let told = one_line(&format!("{} at {place}: {}", warning.code, warning.message));
        printer.note(format_args!("{} {told}", paint.text(Style::Warn, "warning:")));
    }
    if let Some(replicated) = written.replicas.as_ref().filter(|replicated| !replicated.complete) {
        let paint = printer.note_paint();
        let told = not_replicated(replicated);
        printer.note(format_args!("{} {told}", paint.text(Style::Warn, "not replicated:")));
    }
    let exit = match &written.replicas {
        Some(Replicated { complete: false, .. }) => Exit::Unavailable,
        _ => Exit::Done,
    };
    if printer.is_json() {
        printer.json(&answer.body)?;
        return Ok(exit);
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
    if let Some(replicated) = &written.replicas {
        sheet.pair("replicas", format_args!("{} have applied it", replicated.applied));
    }
    printer.sheet(&sheet)?;
    if let Some(replicated) = written.replicas.as_ref().filter(|replicated| !replicated.missing.is_empty()) {
        printer.line("")?;
        printer.sheet(&missing(replicated).indented(2))?;
    }
    Ok(exit)
}

/// What is said of a write that not all replicas have applied.
fn not_replicated(replicated: &Replicated) -> String {
    let count = replicated.missing.len() as u64 + replicated.missing_omitted;
    let who = match count {
        0 => "which replicas there are could not be read".to_owned(),
        count => {
            let names: Vec<String> =
                replicated.missing.iter().take(3).map(|missing| one_line(&missing.replica)).collect();
            let more = match count - names.len() as u64 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let have = if count == 1 { "has" } else { "have" };
            format!("{}{more} {have} not applied it in time", names.join(", "))
        }
    };
    format!("{who}; the write is done and stands")
}

/// The replicas that have not applied a write.
fn missing(replicated: &Replicated) -> Sheet {
    let mut sheet = Sheet::new(&["missing", "position", "silent since", ""]);
    for missing in &replicated.missing {
        let silent = words::duration(Duration::from_millis(missing.silent_ms));
        sheet.row([
            (&missing.replica, Style::Strong),
            (&missing.position, Style::Plain),
            (&words::moment(&missing.silent_since), Style::Plain),
            (&format!("{silent} ago"), Style::Quiet),
        ]);
    }
    sheet
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
    fn who_lags_is_named_and_the_write_stands() {
        let replicas = r#""replicas":{"complete":false,"applied":2,"missing":[{"replica":"edge-7",
            "position":"1.9f86d081884c7d65","silent_since":"2026-11-30T10:00:00.000000Z","silent_ms":2100}]},"agent""#;
        let body: &'static str = UPDATED.replacen("\"agent\"", replicas, 1).leak();
        let (mut printer, out, err) = kept(false);
        assert_eq!(print(&answer(body), &mut printer).unwrap(), Exit::Unavailable);
        let said = "not replicated: edge-7 has not applied it in time; the write is done and stands\n";
        assert!(err.text().ends_with(said), "{}", err.text());
        let told = out.text();
        for part in ["2 have applied it", "edge-7   1.9f86d081884c7d65  2026-11-30 10:00:00Z  2.1 s ago"] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
        let body: &'static str = body.replace(":false,\"applied", ":true,\"applied").leak();
        let (mut printer, _, err) = kept(true);
        assert_eq!(print(&answer(body), &mut printer).unwrap(), Exit::Done);
        assert!(!err.text().contains("not replicated"), "{}", err.text());
    }

    #[test]
    fn programs_get_the_answer_as_it_came() {
        let (mut printer, out, _) = kept(true);
        print(&answer(UPDATED), &mut printer).unwrap();
        assert_eq!(out.text().trim_end(), UPDATED);
    }
}
