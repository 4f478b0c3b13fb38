//! Bypasses a gate for a caller.

use super::{Failure, Press, refused, seen};
use crate::guards::resource::{ACTOR_MAX_BYTES, Seen, Sight};
use crate::guards::{date, path};
use engine::guard::GuardKind;
use engine::leader::Input;
use engine::object::{Uid, clip};
use engine::view::GuardView;
use http::{Method, StatusCode};
use proto::convert::{BypassOrder, REASON_MAX_BYTES};
use runtime::visible;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum number of attempts while other clients replace the gate.
const ATTEMPTS_MAX: usize = 3;

impl Press {
    /// Bypasses a gate, and waits until this replica has applied it. The patch has the uid of the gate that was read as
    /// precondition.
    pub(crate) async fn bypass(&self, order: &BypassOrder, user: Option<&str>) -> Result<GuardView, Failure> {
        self.may_write()?;
        let gate = format!("{}/{}", path(GuardKind::Gate), order.gate);
        for _ in 0..ATTEMPTS_MAX {
            let read = self.send(Method::GET, &gate, &Value::Null).await?;
            match read.status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Err(Failure::NotFound),
                _ => return Err(refused("read the gate", &read)),
            }
            let object: Value = serde_json::from_slice(&read.body).unwrap_or_default();
            let Some(uid) = object["metadata"]["uid"].as_str().and_then(Uid::parse) else {
                return Err(Failure::Refused("the API server returned a gate without a uid".to_owned()));
            };
            // The end is compared with the time of the API server.
            let Some(now) = date(&read) else {
                return Err(Failure::Refused(
                    "the API server's answer has no date, which a bypass counts from".to_owned(),
                ));
            };
            let answer = self.send(Method::PATCH, &gate, &patch(order, &uid, user, now)).await?;
            match answer.status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND => return Err(Failure::NotFound),
                StatusCode::CONFLICT => continue,
                _ => return Err(refused("patch the gate", &answer)),
            }
            let Seen::Standing(standing) = seen(GuardKind::Gate, &answer, Sight::Found { now: date(&answer) })? else {
                return Err(Failure::NotFound);
            };
            self.tell(Input::GuardSeen(standing.guard)).await?;
            let gates = self.reader.with(|queries| queries.guards_of(GuardKind::Gate));
            let view = gates.into_iter().find(|view| view.uid == uid);
            return view.ok_or_else(|| {
                Failure::Refused("the bypass is written, but this replica has not applied it".to_owned())
            });
        }
        Err(Failure::Refused("other clients replace the gate; try again".to_owned()))
    }
}

/// The patch of one field, as `ownergraph release` writes it.
fn patch(order: &BypassOrder, gate: &Uid, user: Option<&str>, now: Duration) -> Value {
    let until = prost_types::Timestamp {
        seconds: i64::try_from((now + order.lifetime).as_secs()).unwrap_or(i64::MAX),
        nanos: 0,
    };
    let line = |text: &str, max: usize| clip(&visible::line(text), max);
    let bypass = json!({
        "untilTime": until.to_string(),
        "reason": line(&order.reason, REASON_MAX_BYTES),
        // Without a user, null removes that of an earlier bypass.
        "by": user.map(|user| line(user, ACTOR_MAX_BYTES)),
    });
    json!({ "metadata": { "uid": gate.to_string() }, "spec": { "bypass": bypass } })
}
