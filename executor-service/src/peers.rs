//! The addresses of a graph service, and names that are resolved for each attempt.

use crate::address;
use crate::dial::Connector;
use engine::time::Time;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Prefix of a peer that is a name.
const DNS: &str = "dns:///";
/// Time for a name resolution. The next attempt tries again.
const RESOLVE_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of addresses of one name. A graph service has a handful of replicas.
const ADDRESSES_MAX: usize = 256;

/// Time for which an address that did not answer comes after the others. It doubles each time.
const SILENT_MIN: Duration = Duration::from_secs(4);
/// Maximum of that time.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// Resolves the addresses of a host. Clones share it.
#[derive(Clone)]
pub struct Resolver(Arc<Resolve>);

type Resolve = dyn Fn(String, u16) -> BoxFuture<'static, Result<Vec<IpAddr>, String>> + Send + Sync;

impl Resolver {
    /// The resolver of this machine.
    pub fn system() -> Resolver {
        Resolver::through(|host, port| {
            async move {
                let found = tokio::net::lookup_host((host, port)).await.map_err(|error| error.to_string())?;
                Ok(found.map(|address| address.ip()).collect())
            }
            .boxed()
        })
    }

    /// Another resolver, such as a table within this process. The error is the reason.
    pub fn through(
        resolve: impl Fn(String, u16) -> BoxFuture<'static, Result<Vec<IpAddr>, String>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver(Arc::new(resolve))
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// One entry of `--graph`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// `HOST:PORT`.
    Address(String),
    /// `dns:///NAME:PORT`: every address of the name is a replica.
    Name { host: String, port: u16 },
}

impl Peer {
    pub(crate) fn parse(text: &str) -> Result<Peer, String> {
        let Some(name) = text.strip_prefix(DNS) else {
            return address::uri(text).map(|_| Peer::Address(text.to_owned()));
        };
        let wanted = || format!("expected {DNS}NAME:PORT");
        let uri = address::uri(name).map_err(|_| wanted())?;
        let (Some(host), Some(port), false) = (uri.host(), uri.port_u16(), name.starts_with("http")) else {
            return Err(wanted());
        };
        if host.contains('[') {
            return Err(format!("{host} is an address and not a name; remove {DNS}"));
        }
        Ok(Peer::Name { host: host.to_owned(), port })
    }
}

/// The target of one attempt.
#[derive(Debug)]
pub(crate) enum Target {
    Address(String),
    /// The next address of a name.
    Name {
        host: String,
        port: u16,
        turn: usize,
        resolver: Resolver,
        /// The target may be on another machine.
        far: bool,
        /// Addresses that did not answer recently. Other addresses come first.
        silent: Vec<String>,
    },
}

impl Target {
    /// The name in the certificate, if it is not the host of the address.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Target::Address(_) => None,
            Target::Name { host, .. } => Some(host),
        }
    }

    /// The address to connect to. The error is a sentence that names the target.
    pub(crate) async fn address(self) -> Result<String, String> {
        let (host, port, turn, resolver, far, silent) = match self {
            Target::Address(address) => return Ok(address),
            Target::Name { host, port, turn, resolver, far, silent } => (host, port, turn, resolver, far, silent),
        };
        let resolving = (resolver.0)(host.clone(), port);
        let found = match tokio::time::timeout(RESOLVE_WITHIN, resolving).await {
            Ok(found) => found.map_err(|why| format!("{host} has no address: {why}"))?,
            Err(_) => return Err(format!("{host} was not resolved within {RESOLVE_WITHIN:?}")),
        };
        // Resolvers shuffle. The sort gives each address its turn.
        let mut addresses = found;
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() {
            return Err(format!("{host} has no address"));
        }
        let in_turn = |at: usize| SocketAddr::new(addresses[(turn + at) % addresses.len()], port).to_string();
        let speaking = (0..addresses.len()).map(in_turn).find(|address| !silent.contains(address));
        let address = speaking.unwrap_or_else(|| in_turn(0));
        if !far && !address::is_loopback(&address) {
            return Err(format!(
                "{address}, found for {host}, is not a loopback address; use TLS (--tls-ca), or allow plaintext to it with --insecure"
            ));
        }
        Ok(address)
    }
}

/// All entries of `--graph`, tried in turn.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) connector: Connector,
    /// Never empty.
    peers: Vec<(String, Peer)>,
    resolver: Resolver,
    far: bool,
    next: usize,
    /// Addresses that did not answer, each with the time until which others come first, and the number of consecutive
    /// failures.
    silent: BTreeMap<String, (Time, u32)>,
}

impl Peers {
    pub(crate) fn new(connector: Connector, resolver: Resolver, peers: Vec<String>, far: bool) -> Peers {
        assert!(!peers.is_empty(), "the list of peers is never empty");
        let parse = |text: String| {
            // An invalid entry fails at each connection attempt, with its reason.
            let peer = Peer::parse(&text).unwrap_or_else(|_| Peer::Address(text.clone()));
            (text, peer)
        };
        Peers {
            connector,
            peers: peers.into_iter().map(parse).collect(),
            resolver,
            far,
            next: 0,
            silent: BTreeMap::new(),
        }
    }

    /// Records that this address did not answer in time, although it may accept connections. Other addresses come first
    /// for a while.
    pub(crate) fn went_silent(&mut self, now: Time, address: &str) {
        if self.silent.len() >= ADDRESSES_MAX {
            self.silent.retain(|_, (until, _)| *until > now);
        }
        let times = self.silent.get(address).map_or(0, |(_, times)| *times);
        if times > 0 || self.silent.len() < ADDRESSES_MAX {
            let wait = SILENT_MIN.saturating_mul(1 << times.min(8)).min(SILENT_MAX);
            self.silent.insert(address.to_owned(), (now + wait, times.saturating_add(1)));
        }
    }

    /// Records that this address has answered.
    pub(crate) fn answered(&mut self, address: &str) {
        self.silent.remove(address);
    }

    /// Whether this address recently did not answer.
    pub(crate) fn is_silent(&self, now: Time, address: &str) -> bool {
        self.silent.get(address).is_some_and(|(until, _)| *until > now)
    }

    /// The next target and its name. Addresses that recently did not answer are left out if there are others.
    pub(crate) fn next(&mut self, now: Time) -> (String, Target) {
        for _ in 1..self.peers.len() {
            let (_, peer) = &self.peers[self.next % self.peers.len()];
            if !matches!(peer, Peer::Address(address) if self.is_silent(now, address)) {
                break;
            }
            self.next = self.next.wrapping_add(1);
        }
        let (text, peer) = &self.peers[self.next % self.peers.len()];
        let target = match peer {
            Peer::Address(address) => Target::Address(address.clone()),
            Peer::Name { host, port } => Target::Name {
                host: host.clone(),
                port: *port,
                turn: self.next / self.peers.len(),
                resolver: self.resolver.clone(),
                far: self.far,
                silent: self.silent.keys().filter(|address| self.is_silent(now, address)).cloned().collect(),
            },
        };
        self.next = self.next.wrapping_add(1);
        (text.clone(), target)
    }

    /// The target for a leader that a replica has named.
    pub(crate) fn hinted(&self, address: &str) -> Result<Target, String> {
        if !self.far && !address::is_loopback(address) {
            return Err(format!(
                "the leader's address {address} is not a loopback address; use TLS (--tls-ca), or allow plaintext to it with --insecure"
            ));
        }
        Ok(Target::Address(address.to_owned()))
    }
}
