//! Creates the Pauses of exhausted budgets and of breakers, and brings the answers of policy engines to the engine.

use super::press::{Failure, Press};
use crate::gates::inbox::{Event, Inbox};
use crate::messages::{Control, WantedPause};
use engine::leader::Input;
use proto::convert::{LIFETIME_MAX, PauseOrder};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Creates wanted pauses until the driver ends.
pub(crate) async fn pauses(press: Press, mut wanted: mpsc::Receiver<WantedPause>) -> anyhow::Result<()> {
    while let Some(wanted) = wanted.recv().await {
        pause(&press, wanted).await;
    }
    Ok(())
}

/// Brings answers to the engine until it ends.
pub(crate) async fn answers(inbox: Inbox, control: mpsc::Sender<Control>) -> anyhow::Result<()> {
    loop {
        for event in inbox.next().await {
            let input = match event {
                Event::Answered(answered) => Input::GateAnswered(answered),
                // Questions that wait for an instance are asked again.
                Event::Connected { instances: 0, .. } => continue,
                Event::Connected { gate, .. } | Event::PolicyChanged { gate } => Input::GateReopened { gate },
                Event::TakenBack { gate, targets } => Input::GateInvalidated { gate, targets },
                Event::NeedsTime { gate, number, extra } => Input::GateNeedsTime { gate, number, extra },
            };
            if control.send(Control::Input(input)).await.is_err() {
                return Ok(());
            }
        }
    }
}

async fn pause(press: &Press, WantedPause { by, scope, reason, lifetime }: WantedPause) {
    let lifetime = lifetime.clamp(Duration::from_secs(1), LIFETIME_MAX);
    let order = PauseOrder { scope, reason, lifetime, request_id: Uuid::new_v4().to_string() };
    match press.pause(&order, Some(&by)).await {
        Ok(view) => tracing::warn!(by, pause = %view.id.name, reason = order.reason, "created a pause"),
        Err(failure) => {
            let why = match failure {
                Failure::NotInstalled => "the definition of pauses is not installed".to_owned(),
                Failure::NotFound => "no pause has that name".to_owned(),
                Failure::Observes => "mode observe creates no guards".to_owned(),
                Failure::Refused(why) => why,
            };
            tracing::error!(by, why, "cannot create a pause; the guard itself still holds what exceeds it");
        }
    }
}
