//! `cardfence ledger verify` and `cardfence ledger export`: the audit.
//!
//! *What a chain shows.* That every entry follows from the one before, and, where the ledger's id is known,
//! that the first one begins that ledger. It is no signature: whoever can rewrite all of it can chain it
//! anew. What makes that visible is a position that was kept elsewhere, in an answer, a log, another export:
//! `--through` holds the chain against it. So the end that was verified is always printed, to be kept.
//!
//! A registry is verified up to a head that was read after the command began. A file holds only the entries,
//! so its ledger's id comes from `--ledger-id`, or from the registry it is held against with `--server`; with
//! neither the first entry is taken as it is, and that is said.

mod chain;
mod export;
mod source;
mod verify;

use super::client::Client;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;

pub(super) use chain::Verified;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Recompute the chain of a registry's ledger, or of an exported file
    Verify(verify::Args),
    /// Write all entries as lines of JSON, verified on the way
    Export(export::Args),
}

pub(super) async fn run(command: Command, printer: &mut Printer) -> Result<Exit, Failure> {
    match command {
        Command::Verify(args) => verify::run(args, printer).await,
        Command::Export(args) => export::run(args, printer).await,
    }
}

/// The ledger of a registry, verified whole.
///
/// # Errors
/// When it is broken, with the place, or cannot be read.
pub(super) async fn verified(client: Client) -> Result<Verified, Failure> {
    let ledger = source::Ledger::open(client).await?;
    let mut chain = chain::Chain::new(Some(&ledger.id), &[]);
    let read = ledger.read(&mut chain, |_| Ok(())).await;
    export::finished(read, &chain)
}
