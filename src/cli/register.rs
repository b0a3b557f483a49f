//! `cardfence register`: what a deploy pipeline runs.

use http::Method;

use super::arguments::{Expect, Input, Server, Writing, agent_path, duration, expect, read_input};
use super::client::Request;
use super::exit::Exit;
use super::failure::Failure;
use super::printer::Printer;
use super::query::Query;
use super::written;
use crate::terms::AgentName;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent
    #[arg(value_name = "NS/NAME")]
    agent: AgentName,
    #[command(flatten)]
    input: Input,
    /// Refuse unless this is current: `absent`, a revision (`7`, `7@<position>`) or a digest
    #[arg(long, value_name = "WHAT", value_parser = expect)]
    expect: Option<Expect>,
    /// What the pipeline calls this deploy, SemVer or an integer; a lower one than before is refused
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Where the card came from, for people: a commit, a pipeline's address
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,
    /// A lease, 1s to 30d: an agent that is not confirmed for so long is shown as unconfirmed
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<String>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args, printer: &mut Printer) -> Result<Exit, Failure> {
    let client = args.server.client()?;
    let card = read_input(&args.input.file)?;
    let mut query = Query::default();
    Expect::add_to_query(args.expect.as_ref(), &mut query);
    query.set_some("release", args.release.as_ref());
    query.set_some("source", args.source.as_ref());
    query.set_some("ttl", args.ttl.as_ref());
    args.writing.add_to(&mut query);
    let request = Request::new(Method::PUT, &agent_path(&args.agent), &query).json(card);
    let request = Expect::add_to(args.expect.as_ref(), request);
    let request = request.patient(args.writing.patience());
    let answer = client.write(request, &args.writing.request_id(), printer).await?;
    written::print(&answer, printer)
}
