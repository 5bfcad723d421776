//! The Kubernetes API on the node, as bytes: requests of clients, answers to them, and what the
//! cloud's dynamic controller answers (metaserver.md, sections 3 to 10).

mod body;
mod discovery;
pub mod item;
pub mod people;
pub mod reply;
pub mod request;
mod selector;
mod table;

#[cfg(test)]
mod tests;
