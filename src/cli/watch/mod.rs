//! `cardfence watch`: what happens to agents, as it happens.
//!
//! The command goes on from the last position that came when a stream ends or breaks, so nothing is missed and nothing
//! is told twice. It ends when it is told to stop, and at the first line that nobody reads.

pub(super) mod events;

use std::time::Duration;

use tokio::time::timeout;

use super::arguments::Server;
use super::client::{Client, jittered};
use super::exit::Exit;
use super::failure::{Failure, failed};
use super::printer::{Printer, Style, one_line};
use super::query::Query;
use super::stop::Signals;
use super::words;
use super::written::class_style;
use crate::terms::{AgentName, Position, Retry};
use crate::wire::{AgentEvent, WatchEnd, WatchReset, WatchSynced};
use events::{Event, Events};

/// A stream that says nothing for so long is dead: a registry sends a checkpoint every 15 s at least.
const SILENT_FOR: Duration = Duration::from_secs(45);
/// Pauses before a stream is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Agents to watch [default: all there are, unless namespaces are named]
    #[arg(value_name = "NS/NAME")]
    agents: Vec<AgentName>,
    /// A namespace to watch; repeatable
    #[arg(long, value_name = "NS")]
    namespace: Vec<String>,
    /// The least class of change that is told in full; what lies below is told as moved, without its card
    #[arg(long, value_name = "CLASS", value_parser = ["breaking", "additive"])]
    class: Option<String>,
    /// Go on after this position instead of beginning with what there is
    #[arg(long, value_name = "POSITION")]
    from: Option<Position>,
    /// Leave the cards out of what is told
    #[arg(long)]
    no_cards: bool,
    #[command(flatten)]
    server: Server,
}

impl Args {
    fn query(&self, json: bool) -> Query {
        let mut query = Query::default();
        for agent in &self.agents {
            query.set("agent", agent);
        }
        for namespace in &self.namespace {
            query.set("namespace", namespace);
        }
        query.set_some("class", self.class.as_ref());
        // Lines for people show no card.
        if self.no_cards || !json {
            query.set("cards", "false");
        }
        query
    }
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let query = args.query(printer.is_json());
    let mut signals = Signals::listen()?;
    let last = args.from.map(|from| from.to_string());
    tokio::select! {
        ended = follow(&client, &query, last, printer) => ended.map(|()| Exit::Done),
        () = signals.next() => Ok(Exit::Done),
    }
}

/// Follows from stream to stream, until nobody reads what is printed.
async fn follow(
    client: &Client,
    query: &Query,
    mut last: Option<String>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut pause = FIRST_PAUSE;
    let mut connected = false;
    loop {
        let failure = match Events::open(client, query, last.as_deref()).await {
            Ok(mut events) => {
                connected = true;
                loop {
                    match next(&mut events).await {
                        Ok(Some(event)) => {
                            pause = FIRST_PAUSE;
                            if let Some(id) = &event.id {
                                last = Some(id.clone());
                            }
                            tell(&event, printer)?;
                            if printer.is_closed() {
                                return Ok(());
                            }
                        }
                        Ok(None) => break failed("the stream is over"),
                        Err(failure) => break failure,
                    }
                }
            }
            // A first try that fails is told; later ones are what this command is there to bridge.
            Err(failure) if !connected || !may_be_opened_again(&failure) => return Err(failure),
            Err(failure) => failure,
        };
        let after = jittered(pause);
        let from = last.as_deref().unwrap_or("the beginning");
        printer.note(format_args!("{failure}; going on from {from} in {}", words::duration(after)));
        tokio::time::sleep(after).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn next(events: &mut Events) -> Result<Option<Event>, Failure> {
    timeout(SILENT_FOR, events.next())
        .await
        .unwrap_or_else(|_| Err(failed(format!("the stream was silent for {}", words::duration(SILENT_FOR)))))
}

fn may_be_opened_again(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { .. } => true,
        Failure::Refused(refused) => {
            refused.reason().is_some_and(|reason| matches!(reason.retry(), Retry::Yes | Retry::Later))
        }
        Failure::Foreign { status, .. } => matches!(status, 502..=504),
        Failure::Usage(_) | Failure::Failed(_) | Failure::Output(_) => false,
    }
}

fn tell(event: &Event, printer: &mut Printer) -> Result<(), Failure> {
    if printer.is_json() {
        let id = event.id.as_deref().map_or_else(|| "null".to_owned(), |id| format!("\"{id}\""));
        let line = format!(r#"{{"event":"{}","id":{id},"data":{}}}"#, event.kind, one_line(&event.data));
        return Ok(printer.json(line.as_bytes())?);
    }
    match event.kind.as_str() {
        "upsert" | "moved" | "retired" => agent(event, &event.read()?, printer),
        "reset" => {
            let WatchReset { position, reason } = event.read()?;
            let why = match reason.as_str() {
                "start" => "what there is",
                _ => "the history has diverged; what there is now",
            };
            line(printer, &position, "reset", Style::Quiet, why)
        }
        "synced" => {
            let WatchSynced { position, .. } = event.read()?;
            line(printer, &position, "synced", Style::Quiet, "complete up to here; what follows happens now")
        }
        "end" => {
            let WatchEnd { reason } = event.read()?;
            printer.note(format_args!("the registry ends the stream: {reason}"));
            Ok(())
        }
        // A checkpoint says that nothing is missing, which is no news.
        _ => Ok(()),
    }
}

fn agent(event: &Event, told: &AgentEvent, printer: &mut Printer) -> Result<(), Failure> {
    let style = match event.kind.as_str() {
        "upsert" => Style::Good,
        "moved" => Style::Quiet,
        _ => Style::Warn,
    };
    let paint = printer.paint();
    let mut text = format!("{}  revision {}", paint.text(Style::Accent, &told.agent), told.revision);
    if let Some(version) = &told.card_version {
        text.push_str(&format!("  version {}", one_line(version)));
    }
    if let Some(class) = &told.class {
        text.push_str(&format!("  {}", paint.text(class_style(class), class)));
    }
    if told.silent {
        text.push_str(&format!("  {}", paint.text(Style::Bad, "silent")));
    }
    line(printer, &told.position, &event.kind, style, &text)
}

fn line(printer: &mut Printer, position: &str, kind: &str, style: Style, text: &str) -> Result<(), Failure> {
    let kind = printer.paint().text(style, format_args!("{kind:<8}"));
    let position = printer.paint().text(Style::Quiet, position);
    Ok(printer.line(format_args!("{position}  {kind}  {text}"))?)
}
