//! Writing the ledger down. A file takes its name only when it is whole and verified.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::arguments::{Server, is_stdio, shown};
use super::super::exit::Exit;
use super::super::failure::{Failure, failed};
use super::super::printer::Printer;
use super::chain::{Chain, Verified};
use super::source::{Ledger, Stopped};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to; standard output when absent or `-`
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let ledger = Ledger::open(args.server.client()?).await?;
    let verified = match args.file.filter(|file| !is_stdio(file)) {
        None => to_stdout(&ledger, printer).await?,
        Some(file) => {
            let verified = to_file(&ledger, &file).await?;
            if printer.is_json() {
                let told = json!({
                    "file": file.display().to_string(),
                    "ledger_id": ledger.id,
                    "entries": verified.entries,
                    "position": verified.position.map(|position| position.to_string()),
                });
                printer.json(told.to_string().as_bytes())?;
            }
            printer.note(format_args!("written to {}", file.display()));
            verified
        }
    };
    printer.note(verified.sentence(Some(&ledger.id)));
    Ok(Exit::Done)
}

async fn to_stdout(ledger: &Ledger, printer: &mut Printer) -> Result<Verified, Failure> {
    let mut chain = Chain::new(Some(&ledger.id), &[]);
    let read = ledger.read(&mut chain, |page| Ok(printer.raw(page)?)).await;
    finished(read, &chain)
}

async fn to_file(ledger: &Ledger, path: &Path) -> Result<Verified, Failure> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    let outcome = async {
        let cannot = |error: std::io::Error| failed(format!("cannot write {}: {error}", shown(&unfinished)));
        let mut file = File::create(&unfinished).map_err(cannot)?;
        let mut chain = Chain::new(Some(&ledger.id), &[]);
        let read = ledger.read(&mut chain, |page| file.write_all(page).map_err(cannot)).await;
        let verified = finished(read, &chain)?;
        file.sync_all().map_err(cannot)?;
        std::fs::rename(&unfinished, path).map_err(cannot)?;
        Ok(verified)
    }
    .await;
    if outcome.is_err() {
        // What is left of it is of no use, and its absence no further failure.
        let _ = std::fs::remove_file(&unfinished);
    }
    outcome
}

/// What a reading came to.
pub(super) fn finished(read: Result<(), Stopped>, chain: &Chain) -> Result<Verified, Failure> {
    match read {
        Ok(()) => chain.finish().map_err(|broken| failed(broken.why)),
        Err(Stopped::Broken(broken)) => {
            Err(failed(format!("the ledger is broken at entry {}: {}", broken.line, broken.why)))
        }
        Err(Stopped::Failure(failure)) => Err(failure),
    }
}
