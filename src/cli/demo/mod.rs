//! `cardfence demo`: a registry of its own, a small fleet, and three incidents, caught.
//!
//! Nothing is staged but the harm: two real nodes over one ledger (`stage`) are spoken to over HTTP, as any
//! caller speaks to a registry, and every claim is checked before it is told (`narrator`). A claim that does
//! not hold ends the demo with exit code 1.

mod fleet;
mod incidents;
mod narrator;
mod stage;
mod valve;

use super::exit::Exit;
use super::failure::{Failure, failed};
use super::ledger;
use super::printer::{Printer, Sheet, Style};
use super::stop::Signals;
use super::words;
use crate::telemetry;
use fleet::FLEET;
use narrator::Narrator;
use stage::Stage;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End after the play instead of going on to serve
    #[arg(long)]
    once: bool,
    /// Where the demo's registry listens; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: String,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    // The fault that is played would fill the log with its own warnings.
    let _telemetry =
        telemetry::tracing::start(false, "error", None).map_err(|error| failed(error.to_string()))?;
    let mut signals = Signals::listen()?;
    let mut stage = Stage::set(&args.listen).await?;
    let played = tokio::select! {
        played = play(&stage, args.once, printer) => played,
        () = signals.next() => Err(failed("stopped before the play was over")),
    };
    let ended = match played {
        Ok(()) if !args.once => tokio::select! {
            failure = stage.failed() => Err(failure),
            () = signals.next() => Ok(()),
        },
        played => played,
    };
    let struck = tokio::select! {
        struck = stage.strike() => struck,
        () = signals.next() => Err(failed("told twice to stop, so what was in flight was dropped")),
    };
    // What went wrong first is what went wrong.
    ended.and(struck)?;
    Ok(Exit::Done)
}

async fn play(stage: &Stage, once: bool, printer: &mut Printer) -> Result<(), Failure> {
    let mut told = Narrator::new(printer);
    let title = told.strong("cardfence demo");
    told.people(format_args!(
        "{title}  a registry at {}, its ledger in a temporary folder",
        stage.primary.base()
    ))?;
    told.people("")?;
    register_fleet(stage, &mut told).await?;
    incidents::replaced(stage, &mut told).await?;
    incidents::moved(stage, &mut told).await?;
    incidents::reused(stage, &mut told).await?;
    audit(stage, &mut told).await?;
    if !once {
        what_next(stage, &mut told)?;
    }
    Ok(())
}

async fn register_fleet(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let mut sheet =
        Sheet::new(&["registered", "revision", "card version", "generation", "skill fingerprint"])
            .indented(3);
    for member in FLEET {
        let written = incidents::deploy(&stage.primary, member, told).await?;
        sheet.row([
            (&written.agent, Style::Accent),
            (&written.revision.to_string(), Style::Plain),
            (written.card_version.as_deref().unwrap_or("-"), Style::Plain),
            (written.generation.as_deref().unwrap_or("-"), Style::Plain),
            (&words::short(written.skill_fingerprint.as_deref().unwrap_or("-")), Style::Quiet),
        ]);
    }
    told.sheet(&sheet)
}

/// The whole ledger, recomputed from what the registry gives out.
async fn audit(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    told.incident(4, "And nobody rewrote any of it")?;
    let verified = ledger::verified(stage.primary.clone()).await?;
    let expected = FLEET.len() as u64 + 3;
    told.claim(
        "audit",
        Style::Good,
        verified.entries == expected,
        format_args!("{} in one chain, each recomputed", words::count(verified.entries, "entry", "entries")),
    )?;
    if let Some(position) = verified.position {
        told.act("keep", format_args!("{position}: held against the ledger later, it shows any rewriting"))?;
    }
    Ok(())
}

fn what_next(stage: &Stage, told: &mut Narrator<'_>) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_else(|| "cardfence".to_owned());
    let (primary, replica) = (stage.primary.base(), stage.replica.base());
    told.people("")?;
    told.people(told.strong("Try next, in another terminal"))?;
    told.people("")?;
    told.people(format_args!("   export CARDFENCE_SERVER={primary}"))?;
    for command in [
        "list",
        "history acme/summarizer",
        "diff acme/reporter",
        "resolve acme/worker-7 --skill task.execute.v3 --max-staleness 0",
        "resolve acme/worker-7 --skill task.execute.v2",
        "ledger verify",
    ] {
        told.people(format_args!("   {program} {command}"))?;
    }
    told.people(format_args!("   curl -i {primary}/agents/acme/reporter/.well-known/agent-card.json"))?;
    told.people("")?;
    let ends = told
        .quiet(format_args!("The replica listens at {replica}. Ctrl-C ends both and removes their ledger."));
    told.people(ends)
}
