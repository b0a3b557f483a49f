//! `cardfence confirm`: heartbeats, of one agent or of a fleet, once or again and again.
//!
//! Once is sent again where that may help, as a write is. With `--every` the next beat makes up for one that failed,
//! so that an outage of the registry ends nothing here; being refused does, because a heartbeat of another card than
//! the current one will not be taken later either.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use super::arguments::{Server, agent_path, read_input, shown, tagged};
use super::client::{Answer, Client, Request, may_be_sent_again};
use super::exit::Exit;
use super::failure::{Failure, failed};
use super::printer::{Printer, Style, one_line};
use super::query::Query;
use super::stop::Signals;
use super::words;
use crate::card::{Card, Limits};
use crate::terms::{AgentName, Digest, Reason, random_bytes};
use crate::wire::{self, Confirm, ConfirmAnswer, ConfirmBatch, ConfirmWanted, Confirmation};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME", required_unless_present = "from", conflicts_with = "from")]
    agent: Option<AgentName>,
    /// The content digest of the card that it serves
    #[arg(
        long,
        value_name = "DIGEST",
        value_parser = tagged,
        required_unless_present_any = ["card", "from"],
        conflicts_with_all = ["card", "from"],
    )]
    digest: Option<String>,
    /// The card that it serves, whose content digest is sent; `-` is standard input
    #[arg(long, value_name = "FILE|-", conflicts_with = "from")]
    card: Option<PathBuf>,
    /// Many agents: a line for each, its name and its card's content digest; `-` is standard input
    #[arg(long, value_name = "FILE|-")]
    from: Option<PathBuf>,
    /// Go on until stopped, at least so often, at most once a second
    #[arg(long, value_name = "DURATION", value_parser = every)]
    every: Option<Duration>,
    #[command(flatten)]
    server: Server,
}

fn every(text: &str) -> Result<Duration, String> {
    let every = wire::duration("every", text).map_err(|error| error.why)?;
    if every < Duration::from_secs(1) { Err("at least 1s is allowed".to_owned()) } else { Ok(every) }
}

/// Agents in one request.
const BATCH: usize = 1_000;

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let beats = match (args.agent, args.from) {
        (Some(agent), _) => {
            let content_digest = match (args.digest, &args.card) {
                (Some(digest), _) => digest,
                (None, Some(file)) => digest_of(file)?,
                (None, None) => return Err(Failure::Usage("--digest or --card is wanted".to_owned())),
            };
            vec![Beat::one(&agent, content_digest)?]
        }
        (None, Some(file)) => fleet(&file)?,
        (None, None) => return Err(Failure::Usage("an agent or --from is wanted".to_owned())),
    };
    match args.every {
        None => {
            let mut exit = Exit::Done;
            for beat in &beats {
                let answer = client.confirm(beat.request.clone(), printer).await?;
                exit = worse(exit, beat.tell(&answer, printer)?.exit);
            }
            Ok(exit)
        }
        Some(every) => keep_on(&client, &beats, every, printer).await,
    }
}

/// Sends all beats again and again, until a signal comes or nothing is left that is not refused.
async fn keep_on(
    client: &Client,
    beats: &[Beat],
    every: Duration,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let mut exit = Exit::Done;
    loop {
        let round = tokio::select! {
            () = signals.next() => return Ok(exit),
            round = once(client, beats, printer) => round,
        };
        let pause = match round {
            Ok(told) if told.confirmed == 0 && told.exit != Exit::Done => return Ok(told.exit),
            Ok(told) => {
                exit = told.exit;
                every
            }
            Err(failure) if may_be_sent_again(&failure) => {
                let pause = (every / 4).max(Duration::from_secs(1));
                printer
                    .note(format_args!("{failure}; the next beat comes within {}", words::duration(pause)));
                pause
            }
            Err(failure) => return Err(failure),
        };
        tokio::select! {
            () = signals.next() => return Ok(exit),
            () = tokio::time::sleep(jittered(pause)) => {}
        }
    }
}

async fn once(client: &Client, beats: &[Beat], printer: &mut Printer) -> Result<Told, Failure> {
    let mut all = Told { confirmed: 0, exit: Exit::Done };
    for beat in beats {
        let told = beat.tell(&client.read(beat.request.clone()).await?, printer)?;
        all = Told { confirmed: all.confirmed + told.confirmed, exit: worse(all.exit, told.exit) };
    }
    Ok(all)
}

/// What was told of an answer.
struct Told {
    confirmed: usize,
    exit: Exit,
}

/// One request.
struct Beat {
    request: Request,
    is_batch: bool,
}

impl Beat {
    fn one(agent: &AgentName, content_digest: String) -> Result<Self, Failure> {
        let path = format!("{}/confirm", agent_path(agent));
        Self::new(&path, &Confirm { content_digest }, false)
    }

    fn new(path: &str, body: &impl serde::Serialize, is_batch: bool) -> Result<Self, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| failed(error.to_string()))?;
        let request = Request::new(Method::POST, path, &Query::default()).json(Bytes::from(body));
        Ok(Self { request, is_batch })
    }

    fn tell(&self, answer: &Answer, printer: &mut Printer) -> Result<Told, Failure> {
        if self.is_batch { tell_many(answer, printer) } else { tell_one(answer, printer) }
    }
}

fn tell_one(answer: &Answer, printer: &mut Printer) -> Result<Told, Failure> {
    let confirmation: Confirmation = answer.read()?;
    if printer.is_json() {
        printer.json(&answer.body)?;
    } else {
        let paint = printer.paint();
        let Confirmation { agent, revision, .. } = &confirmation;
        let lease = confirmation
            .lease_ttl_ms
            .map_or_else(String::new, |ttl| format!(", for {}", words::duration(Duration::from_millis(ttl))));
        let at = words::moment(&confirmation.origin_confirmed_at);
        let agent = paint.text(Style::Strong, agent);
        printer.line(format_args!("confirmed {agent}: revision {revision} at {at}{lease}"))?;
    }
    Ok(Told { confirmed: 1, exit: Exit::Done })
}

fn tell_many(answer: &Answer, printer: &mut Printer) -> Result<Told, Failure> {
    let answered: ConfirmAnswer = answer.read()?;
    let confirmed = answered.items.iter().filter(|item| item.confirmed.is_some()).count();
    let mut exit = Exit::Done;
    for problem in answered.items.iter().filter_map(|item| item.problem.as_ref()) {
        let reason = Reason::ALL.iter().copied().find(|reason| reason.slug() == problem.reason);
        exit = worse(exit, reason.map_or_else(|| Exit::of_status(problem.status), Exit::of));
        let told = one_line(&problem.detail);
        let refused = printer.note_paint().text(Style::Bad, format_args!("refused: {}:", problem.reason));
        let agent = problem.agent.as_deref().unwrap_or("an agent");
        printer.note(format_args!("{agent}: {refused} {told}"));
    }
    if printer.is_json() {
        printer.json(&answer.body)?;
    } else {
        let all = words::count(answered.items.len() as u64, "agent", "agents");
        printer.line(format_args!("confirmed {confirmed} of {all}"))?;
    }
    Ok(Told { confirmed, exit })
}

/// The first way in which something went wrong.
fn worse(before: Exit, now: Exit) -> Exit {
    if before == Exit::Done { now } else { before }
}

fn digest_of(file: &Path) -> Result<String, Failure> {
    let limits = Limits { max_bytes: usize::MAX, max_skills: usize::MAX, ..Limits::default() };
    let card = Card::check(read_input(file)?, &limits);
    let card = card.map_err(|refused| failed(format!("{} is no card: {refused}", shown(file))))?;
    Ok(card.content_digest().tagged())
}

/// The agents of a file, in as few requests as they fit.
fn fleet(file: &Path) -> Result<Vec<Beat>, Failure> {
    let text = read_input(file)?;
    let text = std::str::from_utf8(&text).map_err(|_| failed(format!("{} is not UTF-8", shown(file))))?;
    let mut items = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if !line.trim().is_empty() && !line.starts_with('#') {
            let item = wanted(line);
            items.push(item.map_err(|why| failed(format!("{}, line {number}: {why}", shown(file))))?);
        }
    }
    if items.is_empty() {
        return Err(failed(format!("{} names no agents", shown(file))));
    }
    items
        .chunks(BATCH)
        .map(|items| Beat::new("/v1/confirm", &ConfirmBatch { items: items.to_vec() }, true))
        .collect()
}

fn wanted(line: &str) -> Result<ConfirmWanted, String> {
    let mut words = line.split_whitespace();
    let (Some(agent), Some(digest), None) = (words.next(), words.next(), words.next()) else {
        return Err("an agent and a content digest are wanted".to_owned());
    };
    let agent: AgentName = agent.parse().map_err(|error: crate::terms::InvalidName| error.to_string())?;
    let digest: Digest = digest.parse().map_err(|error: crate::terms::InvalidDigest| error.to_string())?;
    Ok(ConfirmWanted { agent: agent.to_string(), content_digest: digest.tagged() })
}

/// Between four fifths and all of `pause`, so that a fleet that was started together spreads out.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + f64::from(random_bytes::<1>()[0]) / 1_275.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_read_line_by_line() {
        let digest = Digest::of(b"x");
        let line = format!("acme/a\t{}", digest.hex());
        let item = wanted(&line).unwrap();
        assert_eq!((item.agent.as_str(), item.content_digest), ("acme/a", digest.tagged()));
        for bad in ["acme/a", "acme/a sha256:abc", "Acme/a x", "acme/a x y"] {
            assert!(wanted(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_beat_comes_early_rather_than_late() {
        let every = Duration::from_secs(20);
        for _ in 0..1_000 {
            let pause = jittered(every);
            assert!(pause >= every.mul_f64(0.79) && pause <= every.mul_f64(1.001), "{pause:?}");
        }
    }
}
