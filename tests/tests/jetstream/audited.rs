//! Compares the decision log with the API server's own audit log. Both have the same deletions, under any leader.

use super::world::{SOON, World};
use anyhow::{Context, ensure};
use proto::convert::{Standing, standing};
use proto::decision::v1beta1::{DecisionEvent, Phase};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tests::controlplane::require;
use tests::load::{configmap, configmaps, create, create_all, delete_all, reference_to, until};
use tests::nats::{self, Nats};
use tests::replicas::Held;
use tests::subscriber::Subscriber;
use tokio::sync::Mutex;

const OBJECTS: usize = 1500;
/// The references and the bytes of content of some objects. They are below and above the limits of an event, up to the
/// limit of the API server.
const SIZES: [(usize, usize); 7] =
    [(1, 0), (20, 0), (21, 1_000), (50, 100_000), (51, 1_000_000), (1000, 10), (1000, 900_000)];
/// A leader waits for a minute for reports of executors about earlier terms.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// The end of a leader in the middle of a cascade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Killed,
    Terminated,
    Frozen,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_ends_however_its_leader_goes_and_every_deletion_has_its_events() -> anyhow::Result<()> {
    let (Some(program), Some(binaries)) = (nats::require(), require()) else { return Ok(()) };
    let nats = Nats::start(&program, &[]).await?;
    let mut world = World::audited(&binaries, nats, &[]).await?;
    let mut dependents = BTreeSet::new();
    let mut leader = 0;
    for (round, way) in [Way::Killed, Way::Terminated, Way::Frozen].into_iter().enumerate() {
        dependents.extend(world.cascade(&format!("r{round}"), OBJECTS).await?);
        until("some of it is gone", SOON, || world.left(), |left| *left < OBJECTS).await?;
        let process = &mut world.replicas.graphs[leader].service_mut()?.process;
        match way {
            Way::Killed => process.kill()?,
            Way::Terminated => process.terminate()?,
            Way::Frozen => process.pause()?,
        }
        if way != Way::Frozen {
            process.ended(SOON).await?;
        }
        ensure!(world.left().await? > 0, "{way:?}: there is something left for the next leader");
        world.leads(Held { holder: Some(1 - leader), term: round as u64 + 2 }).await?;
        world.all_gone().await?;
        match way {
            Way::Frozen => world.replicas.graphs[leader].service()?.process.resume()?,
            Way::Killed | Way::Terminated => world.replicas.graphs[leader].start(false)?,
        }
        world.replicas.ready().await?;
        leader = 1 - leader;
    }

    dependents.extend(objects_of_every_size(&world).await?);
    let subscriber = Mutex::new(Subscriber::default());
    let read = || async {
        let head = world.head(leader).await?;
        let mut subscriber = subscriber.lock().await;
        world.read(&mut subscriber, leader, head).await?;
        Ok(without_end(&subscriber))
    };
    until("every decision has an end", ENDS_WITHIN, read, Vec::is_empty).await?;
    let subscriber = subscriber.into_inner();
    subscriber.check_all()?;
    let decisions: BTreeSet<&str> = subscriber.events().map(|event| event.decision_id.as_str()).collect();
    let confirmed = subscriber.targets(Phase::Confirmed);
    ensure!(dependents.is_subset(&confirmed), "{} are not confirmed", dependents.difference(&confirmed).count());

    let audited: Vec<_> = world.deletions()?.into_iter().filter(|of| dependents.contains(&of.uid)).collect();
    let deleted: BTreeSet<String> = audited.iter().filter(|of| of.code == 200).map(|of| of.uid.clone()).collect();
    ensure!(deleted == dependents, "{} of {} by the audit log", deleted.len(), dependents.len());
    let reported: BTreeSet<&str> =
        subscriber.events().filter_map(|event| Some(event.report.as_ref()?.audit_id.as_str())).collect();
    let leased = subscriber.targets(Phase::Leased);
    let mut unreported = 0;
    for of in &audited {
        ensure!(leased.contains(&of.uid), "{} was deleted, and the log does not tell that it was to be", of.uid);
        unreported += usize::from(!reported.contains(of.audit_id.as_str()));
    }
    // The last events of a killed or paused leader are not in the log. Its successor confirms its deletions.
    ensure!(unreported <= audited.len() / 20, "{unreported} of {} writes have no report", audited.len());
    eprintln!(
        "{} decisions, all ended; {} writes by the audit log, {unreported} without a report",
        decisions.len(),
        audited.len()
    );
    Ok(())
}

/// Deletes objects with one to many references, and with no content up to the maximum of the API server. Returns their
/// uids.
async fn objects_of_every_size(world: &World) -> anyhow::Result<Vec<String>> {
    let maps = configmaps("default");
    let most = SIZES.iter().map(|size| size.0).max().unwrap_or_default();
    let names: Vec<String> = (0..most).map(|number| format!("many-{number}")).collect();
    let owners = create_all(&world.client, &maps, names.iter().map(|name| configmap(name, &[])).collect()).await?;
    let references: Vec<_> = owners.iter().map(reference_to).collect();
    let mut uids = Vec::new();
    for (number, (count, bytes)) in SIZES.into_iter().enumerate() {
        let mut object = configmap(&format!("sized-{number}"), &references[..count]);
        object["data"] = serde_json::json!({ "content": "x".repeat(bytes) });
        let object = create(&world.client, &maps, &object).await?;
        uids.push(object["metadata"]["uid"].as_str().context("its uid")?.to_owned());
    }
    delete_all(&world.client, &maps, names).await?;
    world.all_gone().await?;
    Ok(uids)
}

/// Returns the ids of decisions without a final step.
fn without_end(subscriber: &Subscriber) -> Vec<String> {
    let mut last: BTreeMap<&str, &DecisionEvent> = BTreeMap::new();
    for event in subscriber.events().filter(|event| !event.decision_id.is_empty()) {
        last.insert(&event.decision_id, event);
    }
    let open = last.into_iter().filter(|(_, event)| standing(event) != Some(Standing::Ended));
    open.map(|(id, _)| id.to_owned()).collect()
}

/// A DELETE from the API server's audit log.
#[derive(Debug)]
pub(crate) struct Deletion {
    pub(crate) uid: String,
    audit_id: String,
    code: u64,
}

impl Deletion {
    /// Returns `None` for an entry without a uid.
    pub(crate) fn read(line: &str) -> anyhow::Result<Option<Deletion>> {
        let event: serde_json::Value = serde_json::from_str(line).context("a line of the audit log")?;
        let Some(uid) = event["requestObject"]["preconditions"]["uid"].as_str() else { return Ok(None) };
        let audit_id = event["auditID"].as_str().context("its id")?.to_owned();
        let code = event["responseStatus"]["code"].as_u64().context("its code")?;
        Ok(Some(Deletion { uid: uid.to_owned(), audit_id, code }))
    }
}
