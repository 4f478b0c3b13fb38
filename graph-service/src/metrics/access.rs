//! Refused calls, and questions to the API server about callers.

use super::zeroed;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use proto::error_reason;
use proto::r#type::v1beta1::ErrorReason;
use runtime::metrics::{Book, Label};

/// The reasons that concern the caller.
pub(crate) const REASONS: [ErrorReason; 8] = [
    ErrorReason::CredentialsMissing,
    ErrorReason::CredentialsInvalid,
    ErrorReason::TokenForOtherAudience,
    ErrorReason::AccessDenied,
    ErrorReason::ExecutorMismatch,
    ErrorReason::ExecutorNameTaken,
    ErrorReason::ExecutorUntrusted,
    ErrorReason::ReviewUnavailable,
];
/// Kinds of review.
const REVIEWS: [&str; 2] = ["token", "access"];
/// Results of a review.
const OUTCOMES: [&str; 3] = ["allowed", "denied", "unanswered"];

/// Metrics of reviews and refused calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessMetrics {
    refused: Family<[(&'static str, &'static str); 1], Counter>,
    reviews: Family<[(&'static str, &'static str); 2], Counter>,
}

impl AccessMetrics {
    pub(crate) fn register(book: &mut Book<'_>) -> AccessMetrics {
        let reviews =
            REVIEWS.into_iter().flat_map(|review| OUTCOMES.map(|outcome| [("review", review), ("outcome", outcome)]));
        AccessMetrics {
            refused: book.put(
                "ownergraph_calls_refused",
                [Label::of("reason", REASONS.map(error_reason::text))],
                (
                    "Calls refused because of the caller's credentials or rights",
                    "The log names each caller once in ten minutes. `REVIEW_UNAVAILABLE`: the API server does not answer, or the service lacks the right to create reviews.",
                ),
                zeroed(REASONS.map(|reason| [("reason", error_reason::text(reason))])),
            ),
            reviews: book.put(
                "ownergraph_access_reviews",
                [Label::of("review", REVIEWS), Label::of("outcome", OUTCOMES)],
                (
                    "Questions to the API server about callers and their rights",
                    "Answers are cached for some seconds. A high rate means many callers.",
                ),
                zeroed(reviews),
            ),
        }
    }

    /// `allowed` is `None` if there was no answer.
    pub(crate) fn reviewed(&self, review: &'static str, allowed: Option<bool>) {
        let outcome = match allowed {
            Some(true) => "allowed",
            Some(false) => "denied",
            None => "unanswered",
        };
        self.reviews.get_or_create(&[("review", review), ("outcome", outcome)]).inc();
    }

    /// Counts a refused call with this reason.
    pub(crate) fn refuse(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    #[cfg(test)]
    pub(crate) fn refused(&self, reason: &'static str) -> u64 {
        self.refused.get_or_create(&[("reason", reason)]).get()
    }
}
