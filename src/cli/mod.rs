//! The command line: one file per subcommand.
//!
//! What a command was asked for goes to standard output, as text for people or, with `--json`, as the
//! registry's own JSON; everything else goes to standard error. How it ended is its exit code ([`Exit`]).
//! Commands speak to a registry over HTTP (`client`), as any caller does: nothing here can see more than a
//! caller may. `serve` and `demo` also start one.

mod arguments;
mod card;
mod client;
mod confirm;
mod demo;
mod diff;
mod exit;
mod failure;
mod history;
mod ledger;
mod list;
mod printer;
mod query;
mod refusal;
mod register;
mod replicas;
mod resolve;
mod retire;
mod rollback;
mod serve;
mod stop;
mod tls;
mod watch;
mod words;
mod written;

use std::ffi::OsString;

use clap::Parser;

pub use exit::Exit;

use failure::Failure;
use printer::Printer;

/// A registry of A2A Agent Cards whose answers are fenced, dated and proven, or refused.
#[derive(Debug, Parser)]
#[command(name = "cardfence", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print JSON for programs; a refusal too, as its problem document
    #[arg(long, global = true)]
    json: bool,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 3 refused by the fence, 4 not found or retired,
5 unavailable, not fresh enough to tell, or not replicated in time, 64 usage.";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start a registry
    Serve(Box<serve::Args>),
    /// Register a card, as a deploy does
    Register(register::Args),
    /// Retire an agent; a tombstone stays
    Retire(retire::Args),
    /// Make the card of an earlier revision current again
    Rollback(rollback::Args),
    /// Resolve an agent under a fence, as a caller does
    Resolve(Box<resolve::Args>),
    /// Confirm that an agent still serves its card: a heartbeat
    Confirm(confirm::Args),
    /// List and search agents
    List(list::Args),
    /// Watch agents: what there is, then every change as it happens
    Watch(watch::Args),
    /// Show an agent's revisions, newest first
    History(history::Args),
    /// Show what changed between two revisions
    Diff(diff::Args),
    /// Show which nodes and edges there are, and how far each has come
    Replicas(replicas::Args),
    /// Work on cards without a registry
    #[command(subcommand)]
    Card(card::Command),
    /// Verify or export the ledger
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Watch three incidents happen to a registry of its own, and be caught
    Demo(demo::Args),
}

impl Cli {
    /// Reads the arguments of this process.
    ///
    /// # Errors
    /// How the process ends when there is nothing to run: help or the version was asked for, or the arguments
    /// make no sense. It has been printed.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Exit> {
        Self::try_parse_from(arguments).map_err(|told| printer::told(&told))
    }

    /// Runs the command. What it has to say is printed when this returns.
    pub async fn run(self) -> Exit {
        let mut printer = Printer::new(self.json);
        match self.command.run(&mut printer).await {
            Ok(exit) => exit,
            Err(failure) => {
                refusal::print(&failure, &mut printer);
                failure.exit()
            }
        }
    }
}

impl Command {
    async fn run(self, printer: &mut Printer) -> Result<Exit, Failure> {
        match self {
            Self::Serve(args) => serve::run(*args, printer).await,
            Self::Register(args) => register::run(args, printer).await,
            Self::Retire(args) => retire::run(args, printer).await,
            Self::Rollback(args) => rollback::run(args, printer).await,
            Self::Resolve(args) => resolve::run(*args, printer).await,
            Self::Confirm(args) => confirm::run(args, printer).await,
            Self::List(args) => list::run(args, printer).await,
            Self::Watch(args) => watch::run(args, printer).await,
            Self::History(args) => history::run(args, printer).await,
            Self::Diff(args) => diff::run(args, printer).await,
            Self::Replicas(args) => replicas::run(args, printer).await,
            Self::Card(command) => card::run(command, printer),
            Self::Ledger(command) => ledger::run(command, printer).await,
            Self::Demo(args) => demo::run(args, printer).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_that_make_no_sense_are_usage() {
        let good = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for bad in [
            "",
            "no-such-command",
            "resolve",
            "resolve acme",
            "resolve Acme/a",
            "resolve acme/a --max-staleness 5",
            "resolve acme/a --max-stalenes 5s",
            "resolve acme/a --at-least 7",
            "resolve acme/a --min-revision 0",
            "resolve acme/a --skill a;b",
            "resolve acme/a --pin sha256:abc",
            "resolve acme/a --wait any",
            "resolve acme/a --at 1.9f86d081884c7d65 --streaming",
            "resolve acme/a --card --json",
            "register acme/a",
            "register acme/a card.json --expect now",
            "rollback acme/a",
            "confirm",
            "confirm acme/a --digest sha256:abc",
            "confirm acme/a --digest e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 --card c.json",
            "confirm acme/a --from fleet.txt",
            "confirm --from fleet.txt --card c.json",
            "confirm acme/a --card c.json --every 0",
            "confirm acme/a --card c.json --every 500ms",
            "register acme/a card.json --ttl 30",
            "rollback acme/a --to 0",
            "list --limit 0",
            "register acme/a card.json --wait-replicated 10",
            "replicas --within any",
            "diff acme/a --from x",
            "ledger",
            "card",
            "serve --listen",
            "watch acme",
            "watch --class cosmetic",
            "watch --from 7",
        ] {
            let arguments = std::iter::once("cardfence").chain(bad.split_whitespace()).map(OsString::from);
            assert!(Cli::try_parse_from(arguments).is_err(), "{bad}");
        }
        for fine in [
            format!("resolve acme/a --pin {good} --skill a;in=text/plain --skill b --max-staleness any"),
            format!("resolve acme/a --known {good} --min-revision 7@1042.9f86d081884c7d65 --wait 0"),
            format!("register acme/a - --expect {good} --release 7 --note n --source s --dry-run"),
            "register acme/a card.json --expect absent --ttl 30s --json".to_owned(),
            format!("confirm acme/a --digest {good} --every 20s"),
            "confirm acme/a --card - --json".to_owned(),
            "confirm --from - --every 1m".to_owned(),
            "watch acme/a acme/b --namespace globex --class breaking --no-cards --json".to_owned(),
            "watch --from 1.9f86d081884c7d65".to_owned(),
            "retire acme/a --wait-replicated 10s".to_owned(),
            "replicas --within 7d --max-staleness 0".to_owned(),
            "--json resolve acme/a --at 1.9f86d081884c7d65".to_owned(),
            "ledger verify export.ndjson --ledger-id x --through 1.9f86d081884c7d65".to_owned(),
        ] {
            let arguments = std::iter::once("cardfence").chain(fine.split_whitespace()).map(OsString::from);
            assert!(Cli::try_parse_from(arguments).is_ok(), "{fine}");
        }
    }
}
