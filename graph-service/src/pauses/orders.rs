//! Carries out the engine's orders about guards: creates Pauses of exhausted budgets and of breakers.

use super::press::{Failure, Press};
use crate::messages::{Control, GuardOrder};
use engine::guard::{Answer, Answered};
use engine::leader::Input;
use engine::scope::Scope;
use proto::convert::{LIFETIME_MAX, PauseOrder};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Carries out orders until the driver ends.
pub(crate) async fn run(
    press: Press,
    mut orders: mpsc::Receiver<GuardOrder>,
    control: mpsc::Sender<Control>,
) -> anyhow::Result<()> {
    while let Some(order) = orders.recv().await {
        match order {
            GuardOrder::Ask(question) => {
                let answered = Answered {
                    gate: question.gate,
                    number: question.number,
                    answer: Answer::Failed,
                    by: String::new(),
                    message: "no policy engine is connected".to_owned(),
                    valid_for: Duration::ZERO,
                };
                if control.send(Control::Input(Input::GateAnswered(answered))).await.is_err() {
                    return Ok(());
                }
            }
            GuardOrder::Cancel { .. } => {}
            GuardOrder::Pause { by, scope, reason, lifetime } => pause(&press, &by, scope, reason, lifetime).await,
        }
    }
    Ok(())
}

async fn pause(press: &Press, by: &str, scope: Scope, reason: String, lifetime: Duration) {
    let lifetime = lifetime.clamp(Duration::from_secs(1), LIFETIME_MAX);
    let order = PauseOrder { scope, reason, lifetime, request_id: Uuid::new_v4().to_string() };
    match press.pause(&order, Some(by)).await {
        Ok(view) => tracing::warn!(by, pause = %view.id.name, reason = order.reason, "created a pause"),
        Err(failure) => {
            let why = match failure {
                Failure::NotInstalled => "the definition of pauses is not installed".to_owned(),
                Failure::NotFound => "no pause has that name".to_owned(),
                Failure::Refused(why) => why,
            };
            tracing::error!(by, why, "cannot create a pause; the guard itself still holds what exceeds it");
        }
    }
}
