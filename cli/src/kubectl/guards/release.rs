//! `release`: ends what guards hold.

use super::patches;
use super::store::{self, Patched};
use super::{create, guard_id, known};
use crate::counted::counted;
use crate::failure::Failure;
use crate::kubectl::columns::span;
use crate::kubectl::confirm::confirmed;
use crate::kubectl::ending::{Answered, Ending, Problem};
use crate::kubectl::flags::{Output, Release};
use crate::kubectl::reviews;
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use crate::name::command;
use crate::remote::{self, Admin};
use engine::guard::{GuardId, GuardKind};
use proto::admin::v1beta1::{BypassGateRequest, Guard, ResumeCollectionRequest};
use runtime::visible::line;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

pub(crate) async fn run(flags: Release) -> Answered {
    let orders = orders(&flags.guards, flags.lifetime, flags.reason.as_deref())?;
    let at_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let deletes = |order: &Order| matches!(order, Order::Delete(_));
    if orders.iter().any(deletes) && !flags.yes && !at_terminal {
        return Err(Problem::sentence("stdin is not a terminal: give --yes to delete pauses and protections"));
    }
    let mut session = create::open(flags.connection, Output::default()).await?;
    let held = if orders.iter().any(deletes) { held(&mut session).await } else { Vec::new() };
    // All questions come first, so that one "no" ends nothing.
    let mut uids = Vec::new();
    for order in &orders {
        let mut uid = None;
        if let Order::Delete(id) = order {
            let read = store::read(&session, id).await?;
            let reason = read.object["spec"]["reason"].as_str().unwrap_or_default();
            let question = format!("To delete {id}, type {}: ", line(&id.name));
            let asked = (!flags.yes).then_some((question.as_str(), &*id.name));
            confirmed(&format!("{}\n", line(&now(id, reason, &held))), asked, "nothing was released")?;
            uid = Some(read.uid);
        }
        uids.push(uid);
    }
    for (order, uid) in orders.into_iter().zip(uids) {
        match order {
            Order::Delete(id) => {
                if let Some(uid) = uid {
                    store::delete(&session, &id, &uid).await?;
                }
                session.print(&format!("{}\n", line(&deleted(&id))))?;
            }
            Order::Bypass(id, lasts, why) => {
                let done = bypass(&session, &id, lasts, &why).await?;
                session.print(&format!("{}\n", line(&done)))?;
            }
            Order::Open(id) => {
                open_window(&session, &id).await?;
            }
        }
    }
    Ok(Ending::Fine)
}

/// Ends what one guard holds, without a question, and says what was done. The duration and the reason are for gates.
/// The graph service ends pauses and bypasses gates, so the caller needs the right to update them, and no other one.
pub(in crate::kubectl) async fn one(
    session: &Session,
    admin: &mut Admin,
    guard: String,
    lifetime: Option<Duration>,
    reason: Option<String>,
) -> Result<String, Failure> {
    let orders = orders(&[guard], lifetime, reason.as_deref()).map_err(|why| Failure::Usage(why.to_string()))?;
    let Ok([order]) = <[Order; 1]>::try_from(orders) else {
        return Err(Failure::Usage("name exactly one guard".to_owned()));
    };
    let name = |id: &GuardId| format!("{}/{}", id.kind.plural(), id.name);
    Ok(match order {
        Order::Delete(id) if id.kind == GuardKind::Pause => {
            remote::within(admin.resume_collection(ResumeCollectionRequest { name: name(&id) })).await?;
            deleted(&id)
        }
        Order::Delete(id) => {
            let read = store::read(session, &id).await?;
            store::delete(session, &id, &read.uid).await?;
            deleted(&id)
        }
        Order::Bypass(id, lasts, reason) => {
            let ttl = Some(prost_types::Duration { seconds: seconds(lasts), nanos: 0 });
            remote::within(admin.bypass_gate(BypassGateRequest { name: name(&id), ttl, reason })).await?;
            bypassed(&id, lasts)
        }
        Order::Open(id) => new_window(session, &id).await?,
    })
}

fn deleted(id: &GuardId) -> String {
    format!("{id} deleted")
}

fn bypassed(id: &GuardId, lasts: Duration) -> String {
    format!("{id} bypassed for {}", span(seconds(lasts)))
}

fn seconds(lasts: Duration) -> i64 {
    i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX)
}

async fn bypass(session: &Session, id: &GuardId, lasts: Duration, why: &str) -> Result<String, Problem> {
    let read = store::read(session, id).await?;
    let by = reviews::user(session).await;
    let patch = patches::bypass(&read.uid, lasts, why, &by, read.now).map_err(Problem::sentence)?;
    patched(id, store::patch(session, id, &patch).await?)?;
    Ok(bypassed(id, lasts))
}

async fn new_window(session: &Session, id: &GuardId) -> Result<String, Problem> {
    let read = store::read(session, id).await?;
    let patch = patches::count_from(&read.uid, read.now, read.object["spec"]["countFrom"].as_str());
    patched(id, store::patch(session, id, &patch).await?)?;
    Ok(format!("{id} has a new window"))
}

/// Begins a new window of a budget.
pub(super) async fn open_window(session: &Session, id: &GuardId) -> Answered {
    let done = new_window(session, id).await?;
    session.print(&format!("{}\n", line(&done)))?;
    Ok(Ending::Fine)
}

fn patched(id: &GuardId, patched: Patched) -> Result<(), Problem> {
    match patched {
        Patched::Done => Ok(()),
        Patched::Changed(why) => Err(Problem::Refused(format!("{id} was replaced meanwhile; try again ({why})"))),
    }
}

/// The action on a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    Delete(GuardId),
    Bypass(GuardId, Duration, String),
    Open(GuardId),
}

/// Reads all arguments before anything is written.
fn orders(guards: &[String], lifetime: Option<Duration>, reason: Option<&str>) -> Result<Vec<Order>, Problem> {
    let orders = guards.iter().map(|word| order(word, lifetime, reason)).collect::<Result<Vec<Order>, _>>()?;
    let bypasses = orders.iter().any(|order| matches!(order, Order::Bypass(..)));
    if !bypasses && (lifetime.is_some() || reason.is_some()) {
        return Err(Problem::sentence("--for and --reason are for gates, and no gate is named"));
    }
    Ok(orders)
}

fn order(word: &str, lifetime: Option<Duration>, reason: Option<&str>) -> Result<Order, Problem> {
    let Some(id) = guard_id(word) else {
        return Err(Problem::sentence(format!(
            "{word:?} is not a guard: write pause/NAME, protection/NAME, gate/NAME or budget/NAME; {} status lists the guards",
            command()
        )));
    };
    match id.kind {
        GuardKind::Pause | GuardKind::Protection => Ok(Order::Delete(id)),
        GuardKind::Budget => Ok(Order::Open(id)),
        GuardKind::Approval => Err(Problem::sentence(format!(
            "{id} is released for each cascade: {0} approve lists those that wait; kubectl delete approvals.{1} {2} ends the Approval",
            command(),
            store::GROUP,
            id.name
        ))),
        GuardKind::Gate => match (lifetime, reason) {
            (Some(lasts), Some(why)) => Ok(Order::Bypass(id, lasts, why.to_owned())),
            _ => Err(Problem::sentence(format!(
                "{id} is bypassed for a time: give --for DURATION, at most 24h, and --reason TEXT"
            ))),
        },
    }
}

/// The guards as the graph service knows them. The deletion of a guard needs no graph service.
async fn held(session: &mut Session) -> Vec<Guard> {
    let found = async {
        let mut service = Service::connect(session, Need::Service).await?;
        Ok::<_, Problem>(known(&mut service.admin).await?)
    };
    match found.await {
        Ok(guards) => guards,
        Err(problem) => {
            session.missed(format!("it is not known what the guards hold: {problem}"));
            Vec::new()
        }
    }
}

/// Returns the number of decisions that a guard holds now, and its scope.
fn now(id: &GuardId, reason: &str, guards: &[Guard]) -> String {
    let guard = guards.iter().find(|guard| guard_id(&guard.name).as_ref() == Some(id));
    let held = guard.map_or_else(
        || "an unknown number of decisions".to_owned(),
        |guard| format!("{} (scope: {})", counted(guard.held_items, "decision"), guard.scope),
    );
    format!("{id} holds {held}: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(guards: &[&str], lifetime: Option<u64>, reason: Option<&str>) -> Result<Vec<Order>, String> {
        let guards: Vec<String> = guards.iter().map(|&guard| guard.to_owned()).collect();
        orders(&guards, lifetime.map(Duration::from_secs), reason).map_err(|problem| problem.to_string())
    }

    fn id(kind: GuardKind, name: &str) -> GuardId {
        GuardId { kind, name: name.into() }
    }

    #[test]
    fn each_kind_of_guard_is_released_in_its_way() {
        let words = ["pauses/a", "protections.ownergraph.dev/b", "ogb/c", "Gate/d"];
        let all = read(&words, Some(60), Some("why")).unwrap();
        let expected = [
            Order::Delete(id(GuardKind::Pause, "a")),
            Order::Delete(id(GuardKind::Protection, "b")),
            Order::Open(id(GuardKind::Budget, "c")),
            Order::Bypass(id(GuardKind::Gate, "d"), Duration::from_secs(60), "why".to_owned()),
        ];
        assert_eq!(all, expected);
        for (words, lifetime, reason, why) in [
            (&["a"][..], None, None, "\"a\" is not a guard: write pause/NAME"),
            (&["pod/a"], None, None, "\"pod/a\" is not a guard"),
            (&[""], None, None, "is not a guard"),
            (
                &["approval/a"],
                None,
                None,
                "ownergraph approve lists those that wait; kubectl delete approvals.ownergraph.dev a",
            ),
            (&["gate/a"], None, Some("why"), "give --for DURATION"),
            (&["gate/a"], Some(60), None, "give --for DURATION"),
            (&["pause/a"], Some(60), None, "are for gates"),
            (&["budget/a", "protection/b"], None, Some("why"), "are for gates"),
        ] {
            let said = read(words, lifetime, reason).unwrap_err();
            assert!(said.contains(why), "{words:?}: {said}");
        }
    }

    #[test]
    fn what_a_guard_holds_is_told_before_it_goes() {
        let guard = Guard {
            name: "protections/keep".to_owned(),
            scope: "pods in shop".to_owned(),
            held_items: 1,
            ..Guard::default()
        };
        let keep = id(GuardKind::Protection, "keep");
        assert_eq!(now(&keep, "why", &[guard]), "protection/keep holds 1 decision (scope: pods in shop): why");
        assert_eq!(now(&keep, "why", &[]), "protection/keep holds an unknown number of decisions: why");
    }
}
