//! The proxy's disturbances, each seen from both ends of a connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::eventually::eventually;
use crate::support::proxy::Proxy;

const SOON: Duration = Duration::from_secs(10);
const NO_ANSWER: Duration = Duration::from_millis(200);

/// A server that says its name, then sends back whatever it gets.
struct Echo {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start(name: u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
        let address = listener.local_addr().expect("it is bound");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                sessions.spawn(async move {
                    let (mut from, mut to) = stream.split();
                    if to.write_all(&[name]).await.is_ok() {
                        tokio::io::copy(&mut from, &mut to).await.ok();
                    }
                });
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.expect("the proxy accepts")
}

async fn read(stream: &mut TcpStream) -> std::io::Result<u8> {
    tokio::time::timeout(SOON, stream.read_u8()).await.expect("something comes, or the end")
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(NO_ANSWER, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn open_proxy_passes_bytes_and_the_end_of_a_stream() {
    let echo = Echo::start(b'a').await;
    let proxy = Proxy::start(echo.address).await;
    let mut stream = connect(&proxy).await;
    let sent: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut from, mut to) = stream.split();
    let mut got = Vec::new();
    let (written, read) = tokio::join!(
        async {
            to.write_all(&sent).await?;
            to.shutdown().await
        },
        from.read_to_end(&mut got)
    );
    written.expect("all is taken");
    read.expect("the end is orderly");
    assert!(got[0] == b'a' && got[1..] == sent);
    eventually(SOON, async || match proxy.connections() {
        0 => Ok(()),
        open => Err(format!("{open} connections are open")),
    })
    .await;
}

#[tokio::test]
async fn cut_resets_and_refuses_until_healed() {
    let echo = Echo::start(b'a').await;
    let proxy = Proxy::start(echo.address).await;
    let mut stream = connect(&proxy).await;
    assert_eq!(read(&mut stream).await.expect("it passes"), b'a');
    proxy.cut().await;
    assert_eq!(proxy.connections(), 0);
    let reset = read(&mut stream).await.expect_err("the connection is gone");
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(proxy.address()).await.expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    proxy.heal().await;
    assert_eq!(read(&mut connect(&proxy).await).await.expect("it passes again"), b'a');
}

#[tokio::test]
async fn freeze_is_silent_and_loses_nothing() {
    let echo = Echo::start(b'a').await;
    let proxy = Proxy::start(echo.address).await;
    let mut old = connect(&proxy).await;
    assert_eq!(read(&mut old).await.expect("it passes"), b'a');
    proxy.freeze();
    old.write_all(b"x").await.expect("the network takes it");
    let mut new = connect(&proxy).await;
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    proxy.thaw();
    assert_eq!(read(&mut old).await.expect("it was held"), b'x');
    assert_eq!(read(&mut new).await.expect("it was held"), b'a');
}

#[tokio::test]
async fn frozen_answers_let_requests_through_and_a_cut_then_loses_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port 0 is always free");
    let proxy = Proxy::start(listener.local_addr().expect("it is bound")).await;
    let mut client = connect(&proxy).await;
    let (mut server, _) = listener.accept().await.expect("the proxy connects");
    proxy.freeze_answers();
    client.write_all(b"q").await.expect("the network takes it");
    assert_eq!(read(&mut server).await.expect("requests pass"), b'q');
    server.write_all(b"r").await.expect("the network takes it");
    assert!(is_silent(&mut client).await);
    proxy.cut().await;
    read(&mut client).await.expect_err("the answer is lost");
    read(&mut server).await.expect_err("the server hears of the cut");
}

#[tokio::test]
async fn delay_moves_bytes_in_time_without_thinning_them_out() {
    let echo = Echo::start(b'a').await;
    let proxy = Proxy::start(echo.address).await;
    let mut stream = connect(&proxy).await;
    read(&mut stream).await.expect("it passes");
    let delay = Duration::from_millis(100);
    proxy.delay(delay);
    let begin = Instant::now();
    let sent = vec![7; 500_000];
    let (mut from, mut to) = stream.split();
    let mut got = vec![0; sent.len()];
    let (written, read) = tokio::join!(to.write_all(&sent), from.read_exact(&mut got));
    written.expect("all is taken");
    read.expect("all comes back");
    let took = begin.elapsed();
    // Each of its 30 pieces is late by 200 ms, and they are late together.
    assert!(took >= 2 * delay && took < 15 * delay, "took {took:?}");
}

#[tokio::test]
async fn retarget_resets_connections_to_the_former_address() {
    let (first, second) = (Echo::start(b'a').await, Echo::start(b'b').await);
    let proxy = Proxy::start(first.address).await;
    let mut stream = connect(&proxy).await;
    assert_eq!(read(&mut stream).await.expect("it passes"), b'a');
    proxy.retarget(second.address).await;
    read(&mut stream).await.expect_err("the connection is gone");
    assert_eq!(read(&mut connect(&proxy).await).await.expect("it passes"), b'b');
}

#[tokio::test]
async fn dropped_proxy_frees_its_port() {
    let echo = Echo::start(b'a').await;
    let proxy = Proxy::start(echo.address).await;
    let address = proxy.address();
    let mut stream = connect(&proxy).await;
    assert_eq!(read(&mut stream).await.expect("it passes"), b'a');
    drop(proxy);
    stream.read_u8().await.expect_err("the connection is gone");
    TcpListener::bind(address).await.expect("the port is free again");
}
