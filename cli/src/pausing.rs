//! `ownergraph pause`, `resume` and `crds`: the brake.

use crate::failure::Failure;
use crate::flags::{PauseFlags, PauseOutput, ResumeFlags};
use crate::remote::{self, Admin, Reach};
use crate::table;
use anyhow::Context as _;
use engine::hold::{Filter, Scope};
use proto::admin::v1beta1 as wire;
use proto::admin::v1beta1::{PauseCollectionRequest, ResumeCollectionRequest};
use proto::convert::{LIFETIME_MAX, PAUSE_PREFIX, PauseOrder};
use proto::r#type::v1beta1::{ReplicaRole, ResponseMeta};
use runtime::visible;
use serde_json::json;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval};
use uuid::Uuid;

/// The definition of pauses, as it goes to `kubectl apply`.
const DEFINITIONS: &str = include_str!("../../deploy/crds/pauses.yaml");
/// Between two looks at whether a pause is effective.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Prints the definitions of our resources.
pub(crate) fn crds() -> Result<(), Failure> {
    io::stdout().write_all(DEFINITIONS.as_bytes()).context("stdout cannot be written")?;
    Ok(())
}

/// Presses pause, and says how it stands.
pub(crate) async fn pause(way: &impl Reach, flags: PauseFlags) -> Result<(), Failure> {
    let order = order(&flags)?;
    let mut admin = Admin::new(way.any().await?);
    let (mut pause, meta) = press(&mut admin, &order).await?;
    // Only the leader knows whether it is effective, and the same order is the same pause.
    if meta.role() != ReplicaRole::Leader
        && let Some(mut leader) = way.at(&meta.leader_endpoint).await.map(Admin::new)
        && let Ok((known, _)) = press(&mut leader, &order).await
    {
        (admin, pause) = (leader, known);
    }
    let pause = match flags.wait {
        Some(wait) => effective(&mut admin, pause, wait).await?,
        None => pause,
    };
    show(&pause, flags.output).context("stdout cannot be written")?;
    Ok(())
}

/// Ends pauses before their time.
pub(crate) async fn resume(way: &impl Reach, flags: ResumeFlags) -> Result<(), Failure> {
    let mut admin = Admin::new(way.any().await?);
    let names = if flags.all {
        let pauses = remote::within(remote::pauses(&mut admin)).await?;
        pauses.into_iter().filter(|pause| !pause.expired).map(|pause| pause.name).collect()
    } else {
        flags.names
    };
    if names.is_empty() {
        writeln!(io::stderr(), "nothing is paused").context("stderr cannot be written")?;
    }
    for name in names {
        let name = name.strip_prefix(PAUSE_PREFIX).unwrap_or(&name);
        let request = ResumeCollectionRequest { name: format!("{PAUSE_PREFIX}{name}") };
        remote::within(admin.resume_collection(request)).await?;
        writeln!(io::stdout(), "{PAUSE_PREFIX}{} resumed", visible::line(name)).context("stdout cannot be written")?;
    }
    Ok(())
}

fn order(flags: &PauseFlags) -> Result<PauseOrder, Failure> {
    let lifetime = flags.lifetime;
    if lifetime > LIFETIME_MAX || lifetime.subsec_nanos() != 0 {
        return Err(Failure::Usage(format!("--for {lifetime:?} is not from 1s to 24h in whole seconds")));
    }
    let namespaces = flags.namespace.iter().map(|name| Arc::from(name.as_str())).collect();
    let filter = Filter { resources: flags.kind.clone(), namespaces };
    Ok(PauseOrder {
        scope: Scope { targets: if flags.all { Vec::new() } else { vec![filter] } },
        reason: flags.reason.clone(),
        lifetime,
        request_id: Uuid::new_v4().to_string(),
    })
}

async fn press(admin: &mut Admin, order: &PauseOrder) -> Result<(wire::Pause, ResponseMeta), Failure> {
    let answer = remote::within(admin.pause_collection(PauseCollectionRequest::from(order.clone()))).await?;
    let pause = answer.pause.context("the graph service answers without a pause")?;
    Ok((pause, answer.meta.unwrap_or_default()))
}

/// Waits until it is effective.
async fn effective(admin: &mut Admin, mut pause: wire::Pause, wait: Duration) -> Result<wire::Pause, Failure> {
    let by = Instant::now() + wait;
    let mut looks = interval(LOOK_EVERY);
    while !pause.effective {
        looks.tick().await;
        let pauses = remote::within(remote::pauses(admin)).await?;
        let known = pauses.into_iter().find(|known| known.name == pause.name && !known.expired);
        pause = known.with_context(|| format!("{} has ended before it was effective", pause.name))?;
        if !pause.effective && Instant::now() >= by {
            let sentence = format!("{} is not effective within {wait:?}: {}", pause.name, pause.pending);
            return Err(Failure::TimedOut(sentence));
        }
    }
    Ok(pause)
}

fn show(pause: &wire::Pause, output: PauseOutput) -> io::Result<()> {
    let mut out = io::stdout();
    match output {
        PauseOutput::Name => writeln!(out, "{}", visible::line(&pause.name))?,
        PauseOutput::Json => writeln!(out, "{}", visible::json(&format!("{:#}", as_json(pause))))?,
        PauseOutput::Table => {
            out.write_all(table::of_pauses(std::slice::from_ref(pause)).as_bytes())?;
            if !pause.pending.is_empty() {
                writeln!(io::stderr(), "note: not effective yet: {}", visible::line(&pause.pending))?;
            }
        }
    }
    Ok(())
}

/// A pause in the names that protobuf gives its fields in JSON.
pub(crate) fn as_json(pause: &wire::Pause) -> serde_json::Value {
    let targets = pause.scope.iter().flat_map(|scope| &scope.targets).map(|target| {
        let resources: Vec<_> =
            target.resources.iter().map(|at| json!({ "group": at.group, "resource": at.resource })).collect();
        json!({ "resources": resources, "namespaces": target.namespaces })
    });
    json!({
        "apiVersion": "ownergraph.admin.v1beta1",
        "kind": "Pause",
        "name": pause.name,
        "scope": { "targets": targets.collect::<Vec<_>>() },
        "reason": pause.reason,
        "actor": pause.actor,
        "createTime": pause.create_time.as_ref().map(ToString::to_string),
        "expireTime": pause.expire_time.as_ref().map(ToString::to_string),
        "effective": pause.effective,
        "oldSessionsRemaining": pause.old_sessions_remaining,
        "pending": pause.pending,
        "heldItems": pause.held_items,
        "expired": pause.expired,
        "problem": pause.problem,
    })
}
