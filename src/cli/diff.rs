//! `cardfence diff`: what changed between two revisions, typed and as text.

use super::arguments::{Server, Standing, agent_path};
use super::client::Request;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::{Paint, Printer, Style, one_line};
use super::words;
use super::written;
use crate::terms::AgentName;
use crate::wire::Diff;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME")]
    agent: AgentName,
    /// A revision [default: the one before --to]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// A revision [default: the current one]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    #[command(flatten)]
    standing: Standing,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut query = args.standing.query();
    query.set_some("from", args.from);
    query.set_some("to", args.to);
    let path = format!("{}/diff", agent_path(&args.agent));
    let answer = client.read(Request::get(&path, &query)).await?;
    if printer.is_json() {
        printer.json(&answer.body)?;
        return Ok(Exit::Done);
    }
    let diff: Diff = answer.read()?;
    let paint = printer.paint();
    printer.line(format_args!(
        "{}: revision {} → {}, {}",
        paint.text(Style::Strong, &diff.agent),
        diff.from,
        diff.to,
        written::class(&diff.change, paint)
    ))?;
    let items = written::items(&diff.change).indented(2);
    if !items.is_empty() {
        printer.line("")?;
        printer.sheet(&items)?;
    }
    if !diff.unified.is_empty() {
        printer.line("")?;
        for line in diff.unified.lines() {
            printer.line(painted(&one_line(line), paint))?;
        }
        if diff.unified_cut {
            printer.note("the difference is longer than what is shown");
        }
    }
    let quiet = printer.note_paint();
    printer.note(quiet.text(Style::Quiet, words::freshness(&diff.freshness, answer.elapsed)));
    Ok(Exit::Done)
}

/// A line of a unified diff in its colour.
pub(super) fn painted(line: &str, paint: Paint) -> String {
    let style = match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") => Style::Strong,
        Some(b'+') => Style::Good,
        Some(b'-') => Style::Bad,
        Some(b'@') => Style::Accent,
        _ => Style::Plain,
    };
    paint.text(style, line)
}
