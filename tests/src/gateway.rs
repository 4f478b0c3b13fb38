//! A proxy on loopback that opens connections for its clients, by HTTP CONNECT or SOCKS5, against a name and a
//! password.

use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The name and the password of clients. The password has a character that a URL cannot have.
const NAME: &str = "gate";
pub const PASSWORD: &str = "pass@word";
/// The same in Base64, for Basic.
const BASIC: &str = "Z2F0ZTpwYXNzQHdvcmQ=";
const HEAD_MAX_BYTES: usize = 4096;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Connect,
    Socks5,
}

/// Connections that were asked for, by destination.
type Asked = Mutex<BTreeMap<String, usize>>;

/// The proxy. It leads every destination to one server, so that a name that does not exist shows who went by it.
#[derive(Debug)]
pub struct Gateway {
    protocol: Protocol,
    address: SocketAddr,
    asked: Arc<Asked>,
    _task: JoinSet<()>,
}

impl Gateway {
    pub async fn start(protocol: Protocol, server: SocketAddr) -> anyhow::Result<Gateway> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a free port on loopback")?;
        let (address, asked) = (listener.local_addr()?, Arc::new(Asked::default()));
        let mut task = JoinSet::new();
        let kept = Arc::clone(&asked);
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                while connections.try_join_next().is_some() {}
                let Ok((client, _)) = listener.accept().await else { continue };
                let asked = Arc::clone(&kept);
                connections.spawn(async move {
                    // A client that is refused, or that breaks off, sees a closed connection.
                    let _closed = carry(client, protocol, server, &asked).await;
                });
            }
        });
        Ok(Gateway { protocol, address, asked, _task: task })
    }

    /// The `proxy-url` of kubeconfigs.
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Connect => "http",
            Protocol::Socks5 => "socks5",
        };
        format!("{scheme}://{NAME}:{}@{}", PASSWORD.replace('@', "%40"), self.address)
    }

    /// How many connections were asked for, by destination.
    pub fn asked(&self) -> BTreeMap<String, usize> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn carry(mut client: TcpStream, protocol: Protocol, server: SocketAddr, asked: &Asked) -> anyhow::Result<()> {
    let destination = match protocol {
        Protocol::Connect => connect(&mut client).await?,
        Protocol::Socks5 => socks5(&mut client).await?,
    };
    let mut server = TcpStream::connect(server).await?;
    *asked.lock().unwrap_or_else(PoisonError::into_inner).entry(destination).or_default() += 1;
    client
        .write_all(match protocol {
            Protocol::Connect => b"HTTP/1.1 200 Connection established\r\n\r\n",
            Protocol::Socks5 => &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
        })
        .await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

async fn connect(client: &mut TcpStream) -> anyhow::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_MAX_BYTES, "a head without end");
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.lines();
    let destination = lines.next().and_then(|line| line.strip_prefix("CONNECT ")?.strip_suffix(" HTTP/1.1"));
    if !lines.any(|line| line.eq_ignore_ascii_case(&format!("Proxy-Authorization: Basic {BASIC}"))) {
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await?;
        anyhow::bail!("unknown");
    }
    Ok(destination.context("no CONNECT")?.to_owned())
}

async fn socks5(client: &mut TcpStream) -> anyhow::Result<String> {
    let mut version = [0; 1];
    client.read_exact(&mut version).await?;
    let methods = text(client).await?;
    ensure!(version == [5] && methods.contains(&2), "no SOCKS5 with a password");
    client.write_all(&[5, 2]).await?;
    client.read_exact(&mut version).await?;
    let (name, password) = (text(client).await?, text(client).await?);
    ensure!(name == NAME.as_bytes() && password == PASSWORD.as_bytes(), "unknown");
    client.write_all(&[1, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head {
        [5, 1, 0, 1] => {
            let mut address = [0; 4];
            client.read_exact(&mut address).await?;
            std::net::Ipv4Addr::from(address).to_string()
        }
        [5, 1, 0, 3] => String::from_utf8(text(client).await?)?,
        _ => anyhow::bail!("not a connection to an IPv4 address or a name"),
    };
    Ok(format!("{host}:{}", client.read_u16().await?))
}

/// Bytes after their number.
async fn text(client: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
