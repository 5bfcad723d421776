//! The texts of refusals that clients match on, and their status codes (gRPC's).

use crate::model::runtime::{Code, JobFault, Refusal};

pub fn refusal(code: Code, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

/// No such container or sandbox: `kind` is that word.
pub fn not_found(kind: &str, id: &str) -> Refusal {
    let message = format!("an error occurred when try to find {kind} {id:?}: not found");
    refusal(Code::NotFound, message)
}

/// Agents read the id of the owner out of this text.
pub fn reserved(kind: &str, name: &str, owner: &str) -> Refusal {
    let message =
        format!("failed to reserve {kind} name {name:?}: name {name:?} is reserved for {owner:?}");
    refusal(Code::Unknown, message)
}

pub fn not_saved(why: &str) -> Refusal {
    refusal(Code::Unknown, format!("the record cannot be saved: {why}"))
}

pub fn cancelled() -> Refusal {
    refusal(Code::Cancelled, "the client has cancelled the call")
}

/// Too many of something.
pub fn exhausted(what: &str, max: usize) -> Refusal {
    refusal(Code::ResourceExhausted, format!("got {what} beyond the limit of {max}"))
}

pub fn of_job(fault: JobFault) -> Refusal {
    match fault {
        JobFault::Invalid(text) => refusal(Code::InvalidArgument, text),
        JobFault::NotFound(text) => refusal(Code::NotFound, text),
        JobFault::Denied(text) => refusal(Code::PermissionDenied, text),
        JobFault::Exhausted(text) => refusal(Code::ResourceExhausted, text),
        JobFault::TimedOut(text) => refusal(Code::DeadlineExceeded, text),
        JobFault::Failed(text) | JobFault::Died(text) | JobFault::SandboxLost(text) => {
            refusal(Code::Unknown, text)
        }
    }
}
