//! Jobs that pull images before pods need them.

use std::collections::BTreeMap;

use edged::controller::time::Rng;
use edged::model::api::Kind;
use serde_json::{Value, json};

use crate::controller::cluster::Name;
use crate::joint::{Joint, NODE};
use crate::stories::EACH;
use crate::worlds::{Fault, draw, each_seed, heal};

const TURNS: u64 = 30;
/// A node may take so long for a job, seconds: longer than any of these worlds lasts.
const TIMEOUT_S: u64 = 86_400;
/// After so long without faults all jobs are over, milliseconds.
const HEALED_MS: u64 = 300_000;

fn key(job: &str) -> Name {
    (Kind::ImagePrePullJob, String::new(), job.to_owned())
}

fn job(name: &str, images: &[&str]) -> Value {
    json!({"kind": "ImagePrePullJob", "metadata": {"name": name},
        "spec": {"imagePrePullTemplate": {"images": images, "nodeNames": [NODE],
            "timeoutSeconds": TIMEOUT_S}}})
}

/// The phase of a job, and that of the node in it.
fn phases(joint: &Joint, name: &str) -> (String, String) {
    let status = &joint.world.cluster.objects[&key(name)]["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&status["phase"]), text(&status["nodeStatus"][0]["phase"]))
}

const GOOD: (&str, &str) = ("Completed", "Successful");
const BAD: (&str, &str) = ("Failure", "Failure");

#[track_caller]
fn phases_are(joint: &Joint, name: &str, expected: (&str, &str)) {
    let (of_job, of_node) = phases(joint, name);
    assert_eq!((&*of_job, &*of_node), expected, "{name}:\n{}", joint.log());
}

#[test]
fn images_are_pulled_and_the_job_says_so() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.apply(Kind::ImagePrePullJob, job("good", &["a:1", "a:2"]));
        joint.apply(Kind::ImagePrePullJob, job("bad", &["a:3", "bad:1"]));
        joint.pass(600_000);
        phases_are(&joint, "good", GOOD);
        phases_are(&joint, "bad", BAD);
        let expected = ["a:1", "a:2", "a:3"].map(str::to_owned);
        assert_eq!(joint.pulled, expected.into());
    }
}

#[test]
fn a_job_outlives_its_node_its_cloud_and_the_link() {
    for sync in EACH {
        let mut joint = Joint::new(sync, 1);
        joint.holds_pulls = true;
        joint.apply(Kind::ImagePrePullJob, job("good", &["a:1"]));
        joint.pass(20_000);
        joint.restart_agent();
        joint.world.crash();
        joint.pass(20_000);
        joint.is_reachable = false;
        joint.cut();
        joint.holds_pulls = false;
        joint.pass(60_000);
        assert!(joint.pulled.contains("a:1"), "it goes on without a cloud:\n{}", joint.log());
        joint.restart_agent();
        joint.is_reachable = true;
        joint.pass(120_000);
        phases_are(&joint, "good", GOOD);
    }
}

struct Drawn {
    joint: Joint,
    rng: Rng,
    /// The images of each job that exists.
    jobs: BTreeMap<String, Vec<String>>,
    last: u64,
}

impl Drawn {
    fn turn(&mut self) {
        match self.rng.below(14) {
            0..=3 => self.make(),
            4 => {
                if let Some((name, _)) = self.jobs.pop_first() {
                    self.joint.world.cluster.remove(&key(&name));
                }
            }
            5..=10 => Fault::draw(&mut self.rng).befall(&mut self.joint, &mut self.rng),
            11 => self.joint.holds_pulls = true,
            _ => {}
        }
        let most = if self.rng.below(8) == 0 { 900_000 } else { 60_000 };
        let ms = 1 + self.rng.below(most);
        self.joint.pass(ms);
        self.joint.is_reachable |= self.rng.below(4) == 0;
        self.joint.holds_pulls &= self.rng.below(3) > 0;
    }

    /// A user makes a job with images of its own.
    fn make(&mut self) {
        self.last += 1;
        let (name, count) = (format!("j{}", self.last), 1 + self.rng.below(3));
        let images: Vec<String> = (0..count)
            .map(|at| {
                let is_bad = self.rng.below(6) == 0;
                format!("{}{}:{at}", if is_bad { "bad" } else { "a" }, self.last)
            })
            .collect();
        let all: Vec<&str> = images.iter().map(String::as_str).collect();
        self.joint.apply(Kind::ImagePrePullJob, job(&name, &all));
        self.jobs.insert(name, images);
    }

    /// All jobs are over, and those that say so have pulled their images.
    fn is_settled(&self) {
        for (name, images) in &self.jobs {
            let (of_job, of_node) = phases(&self.joint, name);
            let got = (&*of_job, &*of_node);
            let is_pulled = images.iter().all(|image| self.joint.pulled.contains(image));
            assert!(
                got == BAD || (got == GOOD && is_pulled),
                "{name} of {images:?} is {got:?}:\n{}",
                self.joint.log()
            );
        }
    }
}

#[test]
fn whatever_happens_jobs_come_to_a_true_end() {
    each_seed(|seed| {
        let (joint, rng) = draw(seed);
        let mut drawn = Drawn { joint, rng, jobs: BTreeMap::new(), last: 0 };
        for _ in 0..TURNS {
            drawn.turn();
        }
        heal(&mut drawn.joint);
        drawn.joint.holds_pulls = false;
        drawn.joint.pass(HEALED_MS);
        drawn.is_settled();
        // A job without faults.
        drawn.joint.apply(Kind::ImagePrePullJob, job("last", &["z:1"]));
        drawn.joint.pass(120_000);
        phases_are(&drawn.joint, "last", GOOD);
    });
}
