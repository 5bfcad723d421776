//! The controller's side: what its own stories use.

#[path = "../controller/any_cluster.rs"]
pub(crate) mod any_cluster;
#[path = "../controller/cluster.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
pub(crate) mod cluster;
#[path = "../controller/edge.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
pub(crate) mod edge;
#[path = "../controller/world.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
pub(crate) mod world;
