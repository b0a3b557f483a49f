//! Recomputing a chain, and saying how much that shows.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::arguments::{DEFAULT_SERVER, is_stdio, shown};
use super::super::client::Client;
use super::super::exit::Exit;
use super::super::failure::{Failure, failed};
use super::super::printer::{Printer, Style};
use super::super::words;
use super::chain::{Broken, Chain, Verified};
use super::source::{Ledger, Stopped};
use crate::terms::Position;
use crate::wire::LedgerEntry;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An export, `-` for standard input; without it the registry's own ledger is verified
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// The registry: the one to verify, or the one that an export is held against
    /// [env: CARDFENCE_SERVER, without FILE] [default: http://127.0.0.1:7878, without FILE]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The id of the ledger that it must be
    #[arg(long, value_name = "UUID")]
    ledger_id: Option<String>,
    /// A position that you kept: the chain must pass through it; repeatable
    #[arg(long, value_name = "POSITION")]
    through: Vec<Position>,
}

/// What a verification came to.
struct Outcome {
    ledger_id: Option<String>,
    result: Result<Verified, Broken>,
    /// How far the chain held.
    held: Option<Position>,
    /// A registry whose ledger holds the last entry too.
    held_against: Option<String>,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let outcome = match &args.file {
        Some(file) => of_file(file, &args).await?,
        None => {
            let from_env = || std::env::var("CARDFENCE_SERVER").ok().filter(|url| !url.is_empty());
            let url = args.server.clone().or_else(from_env);
            of_registry(&url.unwrap_or_else(|| DEFAULT_SERVER.to_owned()), &args).await?
        }
    };
    print(&outcome, args.file.as_deref(), printer)
}

async fn of_registry(url: &str, args: &Args) -> Result<Outcome, Failure> {
    let ledger = Ledger::open(Client::new(url)?).await?;
    check_id(args, &ledger)?;
    let mut chain = Chain::new(Some(&ledger.id), &args.through);
    let result = match ledger.read(&mut chain, |_| Ok(())).await {
        Ok(()) => chain.finish(),
        Err(Stopped::Broken(broken)) => Err(broken),
        Err(Stopped::Failure(failure)) => return Err(failure),
    };
    Ok(Outcome { ledger_id: Some(ledger.id), result, held: chain.position(), held_against: None })
}

async fn of_file(file: &Path, args: &Args) -> Result<Outcome, Failure> {
    let ledger = match &args.server {
        Some(url) => Some(Ledger::open(Client::new(url)?).await?),
        None => None,
    };
    if let Some(ledger) = &ledger {
        check_id(args, ledger)?;
    }
    let ledger_id = ledger.as_ref().map(|ledger| ledger.id.clone()).or_else(|| args.ledger_id.clone());
    let reader: Box<dyn BufRead> = if is_stdio(file) {
        Box::new(std::io::stdin().lock())
    } else {
        let open = File::open(file);
        let open = open.map_err(|error| failed(format!("cannot read {}: {error}", shown(file))))?;
        Box::new(BufReader::new(open))
    };
    let mut chain = Chain::new(ledger_id.as_deref(), &args.through);
    let result = lines(file, reader, &mut chain)?;
    let held = chain.position();
    let result = match (result, &ledger) {
        (Ok(verified), Some(ledger)) => same_end(&chain, ledger).await?.map_or(Ok(verified), Err),
        (result, _) => result,
    };
    let held_against = args.server.clone().filter(|_| result.is_ok());
    Ok(Outcome { ledger_id, result, held, held_against })
}

fn lines(file: &Path, reader: impl BufRead, chain: &mut Chain) -> Result<Result<Verified, Broken>, Failure> {
    for line in reader.split(b'\n') {
        let line = line.map_err(|error| failed(format!("cannot read {}: {error}", shown(file))))?;
        if let Err(broken) = chain.line(&line) {
            return Ok(Err(broken));
        }
    }
    Ok(chain.finish())
}

/// Whether the registry's ledger holds the last entry that was verified, with its digest.
async fn same_end(chain: &Chain, ledger: &Ledger) -> Result<Option<Broken>, Failure> {
    let (seq, Some(digest)) = (chain.seq(), chain.digest()) else { return Ok(None) };
    let differs = |why: String| Ok(Some(Broken { line: seq, why }));
    if seq == 0 {
        return Ok(None);
    }
    let text = ledger.entries(seq, 1).await?;
    if text.is_empty() {
        return differs(format!("the registry's ledger ends at {}, before entry {seq}", ledger.head));
    }
    let entry: LedgerEntry = serde_json::from_slice(&text)
        .map_err(|error| failed(format!("the registry's entry {seq} cannot be read: {error}")))?;
    if entry.seq == seq && entry.digest == digest.hex() {
        return Ok(None);
    }
    differs(format!("the registry's ledger holds another entry {seq}"))
}

fn check_id(args: &Args, ledger: &Ledger) -> Result<(), Failure> {
    match &args.ledger_id {
        Some(id) if *id != ledger.id => {
            Err(failed(format!("the registry's ledger is {}, not {id}", ledger.id)))
        }
        _ => Ok(()),
    }
}

fn print(outcome: &Outcome, file: Option<&Path>, printer: &mut Printer) -> Result<Exit, Failure> {
    let id = outcome.ledger_id.as_deref();
    if printer.is_json() {
        let told = match &outcome.result {
            Ok(verified) => json!({
                "verified": true,
                "ledger_id": id,
                "entries": verified.entries,
                "from": verified.from,
                "position": verified.position.map(|position| position.to_string()),
                "without_body": verified.without_body,
                "through": verified.through,
                "held_against": outcome.held_against,
            }),
            Err(broken) => json!({
                "verified": false,
                "ledger_id": id,
                "position": outcome.held.map(|position| position.to_string()),
                "broken": broken,
            }),
        };
        printer.json(told.to_string().as_bytes())?;
    } else {
        tell(outcome, file, printer)?;
    }
    Ok(if outcome.result.is_ok() { Exit::Done } else { Exit::Failed })
}

fn tell(outcome: &Outcome, file: Option<&Path>, printer: &mut Printer) -> Result<(), Failure> {
    let paint = printer.paint();
    let verified = match &outcome.result {
        Ok(verified) => verified,
        Err(broken) => {
            let place = match file {
                Some(file) => format!("{}, line {}", shown(file), broken.line),
                None => format!("entry {}", broken.line),
            };
            let broken = format!("{} at {place}: {}", paint.text(Style::Bad, "broken"), broken.why);
            printer.line(broken)?;
            if let Some(held) = outcome.held {
                printer.line(format_args!("it holds up to position {held}"))?;
            }
            return Ok(());
        }
    };
    printer.line(paint.text(Style::Good, verified.sentence(outcome.ledger_id.as_deref())))?;
    for position in &verified.through {
        printer.line(format_args!("it passes through {position}"))?;
    }
    if let Some(registry) = &outcome.held_against {
        printer.line(format_args!("{registry} holds the same last entry"))?;
    }
    if verified.without_body > 0 {
        let entries = words::count(verified.without_body, "entry", "entries");
        printer.note(format_args!("the body of {entries} is not shown, so its digest is taken as it is"));
    }
    if outcome.ledger_id.is_none() && verified.entries > 0 {
        printer.note(
            "the first entry is taken as it is: say --ledger-id or --server to verify the beginning too",
        );
    }
    if verified.through.is_empty() && outcome.held_against.is_none() && file.is_some() {
        printer
            .note("keep the position: --through POSITION shows later that nothing before it was rewritten");
    }
    Ok(())
}
