//! `cardfence replicas`: which nodes and edges there are, and how far each has come.

use std::time::Duration;

use super::arguments::{Server, Standing, duration};
use super::client::Request;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::{Printer, Sheet, Style};
use super::words;
use crate::wire::{List, ReplicaItem};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Those that reported within this duration, at most 7d [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    within: Option<String>,
    #[command(flatten)]
    standing: Standing,
    #[command(flatten)]
    server: Server,
}

/// Who was silent for longer is shown as that: it has missed a dozen reports.
const SILENT: Duration = Duration::from_secs(60);

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let mut query = args.standing.query();
    query.set_some("within", args.within.as_ref());
    let answer = client.read(Request::get("/v1/replicas", &query)).await?;
    if printer.is_json() {
        printer.json(&answer.body)?;
        return Ok(Exit::Done);
    }
    let list: List<ReplicaItem> = answer.read()?;
    printer.sheet(&table(&list.items))?;
    let omitted: u64 = list.items.iter().filter_map(|item| item.omitted.as_ref()).map(|o| o.count).sum();
    let count = words::count(list.items.len() as u64, "replica", "replicas");
    let more =
        if omitted > 0 { format!(", and {omitted} more that have come further") } else { String::new() };
    let age = words::freshness(&list.freshness, answer.elapsed);
    printer.note(format_args!("{count}{more}; {age}"));
    Ok(Exit::Done)
}

fn table(items: &[ReplicaItem]) -> Sheet {
    let mut sheet = Sheet::new(&[
        "replica",
        "role",
        "position",
        "behind",
        "staleness",
        "hops",
        "via",
        "version",
        "last report",
    ]);
    for item in items {
        let silent = Duration::from_millis(item.silent_ms);
        let behind = item.behind.map_or_else(|| "another history".to_owned(), |behind| behind.to_string());
        let staleness = item.staleness_ms.map(Duration::from_millis).map(words::duration);
        sheet.row([
            (&item.replica, Style::Strong),
            (&item.role, Style::Plain),
            (&item.position, Style::Plain),
            (&behind, if item.behind == Some(0) { Style::Good } else { Style::Warn }),
            (staleness.as_deref().unwrap_or("unknown"), Style::Plain),
            (&item.hops.to_string(), Style::Plain),
            (item.via.as_deref().unwrap_or("-"), Style::Plain),
            (&item.version, Style::Plain),
            (
                &format!("{} ago", words::duration(silent)),
                if silent > SILENT { Style::Bad } else { Style::Plain },
            ),
        ]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::super::printer::tests::kept;
    use super::*;

    #[test]
    fn what_is_not_known_is_said_so() {
        let item = ReplicaItem {
            replica: "node-1".to_owned(),
            role: "node".to_owned(),
            position: "4.9f86d081884c7d65".to_owned(),
            behind: Some(0),
            staleness_ms: None,
            hops: 0,
            version: "0.1.0".to_owned(),
            via: None,
            silent_ms: 2_100,
            omitted: None,
        };
        let lost = ReplicaItem { behind: None, via: Some("node-1".to_owned()), ..item.clone() };
        let (mut printer, out, _) = kept(false);
        printer.sheet(&table(&[item, lost])).unwrap();
        let told = out.text();
        for part in [
            "node-1   node  4.9f86d081884c7d65  0                unknown    0     -       0.1.0    2.1 s ago",
            "another history  unknown    0     node-1",
        ] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
    }
}
