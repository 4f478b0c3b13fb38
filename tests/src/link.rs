//! A connection between two processes that a test can hold or cut: a TCP proxy on loopback.
//!
//! A held wire is a network partition. Nothing arrives and nothing breaks. The data in flight arrive when the partition
//! ends. A cut wire breaks every connection and refuses new ones.

use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const CHUNK_BYTES: usize = 64 * 1024;
/// The maximum number of bytes that a client may send before the link knows it.
const INTRODUCTION_MAX_BYTES: usize = 16 * 1024;
const CONNECTIONS_MAX: usize = 256;

/// The treatment of the data on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Open,
    Held,
    Cut,
}

/// A listening address, and the wires from it to one server.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    wires: Arc<Wires>,
    _task: JoinSet<()>,
}

#[derive(Debug)]
struct Wires {
    target: SocketAddr,
    /// The wires, each with the bytes that identify its client. Empty if all clients share one wire.
    wires: Vec<(String, watch::Sender<Wire>)>,
    /// The pieces of data on the way to the server that a held wire keeps.
    kept: AtomicUsize,
    /// The milliseconds before a new connection reaches the server.
    slow: AtomicU64,
    /// The value changes when every connection breaks.
    breaks: watch::Sender<()>,
}

impl Link {
    /// Opens a link with one wire for all clients.
    pub async fn to(target: SocketAddr) -> anyhow::Result<Link> {
        Link::start(target, vec![String::new()]).await
    }

    /// Opens a link with a wire for each client. The first of these words that a client sends selects its wire. Each
    /// client must send a word before it receives data.
    pub async fn for_each(target: SocketAddr, words: &[String]) -> anyhow::Result<Link> {
        Link::start(target, words.to_vec()).await
    }

    async fn start(target: SocketAddr, words: Vec<String>) -> anyhow::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port on loopback")?;
        let address = listener.local_addr()?;
        let wires = words.into_iter().map(|word| (word, watch::Sender::new(Wire::Open))).collect();
        let wires = Arc::new(Wires {
            target,
            wires,
            kept: AtomicUsize::new(0),
            slow: AtomicU64::new(0),
            breaks: watch::Sender::new(()),
        });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&wires)));
        Ok(Link { address, wires, _task: task })
    }

    /// The address of the link.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes one wire. An empty word changes all wires.
    pub fn set(&self, word: &str, wire: Wire) {
        for (_, sender) in self.wires.wires.iter().filter(|(known, _)| word.is_empty() || known == word) {
            sender.send_replace(wire);
        }
    }

    /// Breaks every connection. New connections reach the server after this delay.
    pub fn reconnect_slowly(&self, by: Duration) {
        self.wires.slow.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.wires.breaks.send_replace(());
    }

    /// The number of pieces of data on the way to the server that a held wire keeps.
    pub fn kept(&self) -> usize {
        self.wires.kept.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, wires: Arc<Wires>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        // If no file descriptors are left, the client sees a connection without an answer, and retries.
        let Ok((client, _)) = listener.accept().await else { continue };
        connections.spawn(connection(client, Arc::clone(&wires)));
    }
}

/// Ends when either side has ended. Both sides see an error as a closed connection.
async fn connection(mut client: TcpStream, wires: Arc<Wires>) {
    let mut breaks = wires.breaks.subscribe();
    let slow = Duration::from_millis(wires.slow.load(Ordering::SeqCst));
    if !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    let Some((introduction, wire)) = introduced(&mut client, &wires).await else { return };
    let mut cut = wire.clone();
    let carried = async {
        let mut server = TcpStream::connect(wires.target).await?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, mut to_server) = server.split();
        let up = async {
            pass(&mut wire.clone(), Some(&wires.kept)).await;
            to_server.write_all(&introduction).await?;
            carry(from_client, to_server, wire.clone(), Some(&wires.kept)).await
        };
        let down = carry(from_server, to_client, wire.clone(), None);
        tokio::try_join!(up, down).map(drop)
    };
    tokio::select! {
        _broken = carried => {}
        _cut = cut.wait_for(|wire| *wire == Wire::Cut) => {}
        _breaks = breaks.changed() => {}
    }
}

/// Returns the first bytes of the client and its wire. `None` if the client left early, or has no wire.
async fn introduced(client: &mut TcpStream, wires: &Wires) -> Option<(Vec<u8>, watch::Receiver<Wire>)> {
    let mut said = Vec::new();
    loop {
        let known = wires
            .wires
            .iter()
            .find(|(word, _)| word.is_empty() || said.windows(word.len()).any(|window| window == word.as_bytes()));
        if let Some((_, wire)) = known {
            return Some((said, wire.subscribe()));
        }
        if said.len() >= INTRODUCTION_MAX_BYTES || client.read_buf(&mut said).await.ok()? == 0 {
            return None;
        }
    }
}

/// Waits while the wire is held.
async fn pass(wire: &mut watch::Receiver<Wire>, kept: Option<&AtomicUsize>) {
    if *wire.borrow_and_update() != Wire::Held {
        return;
    }
    let _one_more = kept.map(Kept::one_more);
    // An error means that the link is dropped, and this task with it.
    let _dropped = wire.wait_for(|wire| *wire != Wire::Held).await;
}

/// Adds one to a count as long as the value exists.
struct Kept<'a>(&'a AtomicUsize);

impl Kept<'_> {
    fn one_more(count: &AtomicUsize) -> Kept<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        Kept(count)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut wire: watch::Receiver<Wire>,
    kept: Option<&AtomicUsize>,
) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        pass(&mut wire, kept).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..read]).await?;
    }
}
