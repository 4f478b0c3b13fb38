//! State that every component of the leader uses: the configuration, the clock, the term, and the queue of effects.

use super::{Config, Event, Grounds, Mode, Named, Output, Probe, ProbeId, StreamId, Timer};
use crate::jitter::Rng;
use crate::object::{GroupResource, Name, ObjectRef, ResourceVersion, ServedKind};
use crate::pace::Rate;
use crate::time::Time;
use crate::timers::Timers;
use crate::work::{Term, ToExecutor};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) jitter: Rng,
    pub(super) now: Time,
    pub(super) outputs: VecDeque<Output>,
    pub(super) timers: Timers<Timer>,
    /// The number of events since the last one with the counts of the comparison.
    pub(super) events_since_compared: usize,
    /// The term of this replica; `None` while this replica does not lead.
    pub(super) term: Option<Term>,
    /// The address of another replica that leads; empty if this replica does not know one.
    pub(super) leader_endpoint: String,
    pub(super) stopping: bool,
}

impl Context {
    pub(super) fn new(config: Config, seed: u64) -> Context {
        Context {
            config,
            jitter: Rng::new(seed),
            now: Time::ZERO,
            outputs: VecDeque::new(),
            timers: Timers::default(),
            events_since_compared: 0,
            term: None,
            leader_endpoint: String::new(),
            stopping: false,
        }
    }

    /// Whether this replica compares its decisions with another collector.
    pub(super) fn compares(&self) -> bool {
        self.config.mode == Mode::Observe && self.term.is_some()
    }

    pub(super) fn event(&mut self, event: Event) {
        self.events_since_compared += 1;
        if matches!(event, Event::Compared(_)) {
            self.events_since_compared = 0;
        }
        self.outputs.push_back(Output::Event(event));
    }

    pub(super) fn send(&mut self, stream: StreamId, message: ToExecutor) {
        self.outputs.push_back(Output::Send { stream, message });
    }

    /// Requests a list, or one object, from the API server. An empty namespace means all namespaces.
    pub(super) fn probe(
        &mut self,
        id: ProbeId,
        served: &ServedKind,
        namespace: Option<Name>,
        limit: Option<u32>,
        object: Option<Named>,
        fresh: bool,
    ) {
        let ServedKind { group_resource, kind, version, .. } = served;
        let (collection, kind, version) = (group_resource.clone(), kind.clone(), version.clone());
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        self.outputs.push_back(Output::Probe(Probe { id, collection, kind, version, namespace, limit, object, fresh }));
    }

    /// Reports that a target is gone.
    pub(super) fn confirm(
        &mut self,
        target: ObjectRef,
        resource_version: Option<ResourceVersion>,
        grounds: Box<Grounds>,
    ) {
        if self.term.is_some() {
            self.event(Event::Confirmed { target, resource_version, grounds });
        }
    }

    /// Returns whether an invisible collection may contain dependents. The policy can exempt a collection.
    pub(super) fn may_hide_dependents(&self, kind: &crate::coverage::Kind) -> bool {
        let assumed = |served: &ServedKind| {
            let GroupResource { group, resource } = &served.group_resource;
            self.config.policy.assumes_no_dependents(group, Some(resource))
        };
        kind.is_uncertain() && !kind.served().is_some_and(assumed)
    }

    /// Returns the maximum number of writes per second, if the policy sets one.
    pub(super) fn cap(&self) -> Option<Rate> {
        self.config.policy.max_writes_per_second.filter(|_| self.term.is_some() && !self.stopping)
    }
}
