//! How a failure is told: a refusal with all that the registry said, everything else in one line.
//!
//! For people it goes to standard error. For programs the registry's own problem document goes to standard
//! output, so that a refusal is read like any answer.

use super::failure::{Failure, Refused};
use super::printer::{Paint, Printer, Sheet, Style, one_line};
use super::words;
use super::written;
use crate::wire::{Condition, Problem};

/// Prints why a command failed.
pub(super) fn print(failure: &Failure, printer: &mut Printer) {
    let paint = printer.note_paint();
    match failure {
        Failure::Refused(refused) if printer.is_json() => {
            if let Err(error) = printer.json(&refused.json) {
                printer.note(format_args!(
                    "{} cannot write the output: {error}",
                    paint.text(Style::Bad, "error:")
                ));
            }
        }
        Failure::Refused(refused) => tell(refused, printer),
        other => printer.note(format_args!("{} {other}", paint.text(Style::Bad, "error:"))),
    }
}

fn tell(refused: &Refused, printer: &mut Printer) {
    let (problem, paint) = (&refused.problem, printer.note_paint());
    printer.note(headline(problem, paint));
    let conditions = conditions(problem);
    if !conditions.is_empty() {
        printer.note("");
        printer.note_sheet(&conditions);
    }
    if !problem.violations.is_empty() {
        printer.note("");
        let mut sheet = Sheet::new(&["where", "violation", ""]).indented(2);
        for violation in &problem.violations {
            let place = if violation.pointer.is_empty() { "the document" } else { &violation.pointer };
            sheet.row([
                (place, Style::Plain),
                (&violation.code, Style::Bad),
                (&violation.message, Style::Plain),
            ]);
        }
        printer.note_sheet(&sheet);
    }
    if let Some(change) = &problem.change {
        printer.note("");
        printer.note(format_args!("  the change would be {}", written::class(change, paint)));
        printer.note_sheet(&written::items(change).indented(2));
    }
    let afterwards = afterwards(refused);
    if !afterwards.is_empty() {
        printer.note("");
    }
    for line in afterwards {
        printer.note(format_args!("  {}", paint.text(Style::Quiet, line)));
    }
}

/// The reason and the detail.
fn headline(problem: &Problem, paint: Paint) -> String {
    let reason = paint.text(Style::Bad, format_args!("refused: {}:", problem.reason));
    match problem.violations.len() {
        0 => format!("{reason} {}", one_line(&problem.detail)),
        // The detail says what the table below says.
        1 => format!("{reason} the card has 1 violation"),
        many => format!("{reason} the card has {many} violations"),
    }
}

/// Every condition of the fence with what was wanted and found.
fn conditions(problem: &Problem) -> Sheet {
    if problem.conditions.is_empty() {
        return Sheet::bare();
    }
    let mut sheet = Sheet::new(&["condition", "outcome", "wanted", "found"]).indented(2);
    for Condition { condition, outcome, wanted, found } in &problem.conditions {
        let style = match outcome.as_str() {
            "passed" => Style::Good,
            "unverifiable" => Style::Warn,
            _ => Style::Bad,
        };
        let [wanted, found] =
            [wanted, found].map(|text| if is_digest(text) { words::short(text) } else { text.clone() });
        sheet.row([
            (condition, Style::Plain),
            (outcome, style),
            (&wanted, Style::Plain),
            (&found, Style::Plain),
        ]);
    }
    sheet
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What else is known: which card is attached, how old it is, when to try again.
fn afterwards(refused: &Refused) -> Vec<String> {
    let problem = &refused.problem;
    let mut lines = Vec::new();
    if let (Some(agent), Some(revision), true) = (&problem.agent, problem.revision, problem.card.is_some()) {
        lines.push(format!("what was refused: {agent} revision {revision}; --json prints it with its card"));
    }
    if let Some(freshness) = &problem.freshness {
        lines.push(format!("what it was judged on: {}", words::freshness(freshness, refused.elapsed)));
    }
    if let Some(millis) = problem.retry_after_ms {
        let pause = words::duration(std::time::Duration::from_millis(millis));
        lines.push(format!("it may be tried again in {pause}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::printer::tests::kept;
    use super::*;

    const PROBLEM: &str = r#"{"type":"urn:cardfence:problem:mode_missing","title":"mode missing","status":412,
        "detail":"skills: s;out=text/markdown was wanted, s;out=text/plain was found","reason":"mode_missing",
        "conditions":[{"condition":"max_staleness","outcome":"passed","wanted":"5s","found":"3ms"},
                      {"condition":"skills","outcome":"failed","wanted":"s;out=text/markdown","found":"s;out=text/plain"}],
        "freshness":{"position":"4.9f86d081884c7d65","staleness_ms":3,"proven_at":null,"basis":"authority",
                     "served_by":"a","hops":0,"origin_confirmed_at":null,"observed_redeploy_interval_ms":null,
                     "revalidate_after_ms":null},
        "agent":"acme/a","revision":2,"card":{"name":"A"},"surprise":1}"#;

    fn refused() -> Failure {
        let json = Bytes::from_static(PROBLEM.as_bytes());
        let problem = serde_json::from_slice(&json).unwrap();
        Failure::Refused(Box::new(Refused { problem, json, elapsed: std::time::Duration::ZERO }))
    }

    #[test]
    fn people_read_every_condition_on_standard_error() {
        let (mut printer, out, err) = kept(false);
        print(&refused(), &mut printer);
        assert_eq!(out.text(), "");
        let told = err.text();
        for part in [
            "refused: mode_missing: skills:",
            "condition",
            "max_staleness  passed",
            "skills         failed",
            "acme/a revision 2",
            "at most 3 ms old, proven by node a",
        ] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
    }

    #[test]
    fn programs_get_the_problem_as_it_came() {
        let (mut printer, out, err) = kept(true);
        print(&refused(), &mut printer);
        assert_eq!(out.text().trim_end(), PROBLEM);
        assert_eq!(err.text(), "");
    }

    #[test]
    fn other_failures_are_one_line() {
        let (mut printer, out, err) = kept(true);
        let failure = Failure::Unreachable { server: "http://x".to_owned(), why: "refused".to_owned() };
        print(&failure, &mut printer);
        assert_eq!(
            (out.text().as_str(), err.text().as_str()),
            ("", "error: no answer from http://x: refused\n")
        );
        assert_eq!(failure.exit().code(), 5);
    }
}
