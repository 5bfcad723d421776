//! Draws pods as users write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::model::pod::{Container, Metadata, Pod, PodSpec, PullPolicy, RestartPolicy, Volume};
use serde_json::json;

use crate::chance::Chance;
use crate::faults::Class;
use crate::probed;
use crate::program::{Behaviour, Program, Term, Then};

/// Images of the registry, with the milliseconds of a calm pull, and one that it does not have.
const IMAGES: [(&str, u64); 8] = [
    ("reg.example/app:1", 800),
    ("reg.example/app:2", 1_500),
    ("reg.example/db:7", 6_000),
    ("busybox:1.36", 200),
    ("busybox", 200),
    (
        "reg.example/side@sha256:0af10af10af10af10af10af10af10af10af10af10af10af10af10af10af10af1",
        400,
    ),
    ("localhost:5000/tool", 300),
    ("reg.example/big:latest", 3_000),
];
const NOWHERE: &str = "reg.example/nowhere:1";

/// The images of the registry, by full name.
pub fn offers() -> BTreeMap<Box<str>, u64> {
    IMAGES.iter().map(|&(image, ms)| (full_name(image), ms)).collect()
}

/// A name without tag and digest means `latest`.
pub fn full_name(image: &str) -> Box<str> {
    let last = image.rsplit('/').next().unwrap_or_default();
    let complete = last.contains(':') || image.contains('@');
    if complete { image.into() } else { format!("{image}:latest").into() }
}

/// Draws pods; the numbers in their names only grow.
pub struct Drawer {
    class: Class,
    pods: u64,
    uids: u64,
    ports: u16,
}

impl Drawer {
    /// Pods that fit the class of the world.
    pub fn new(class: Class) -> Self {
        Self { class, pods: 0, uids: 0, ports: 0 }
    }

    /// For a second source, whose ports are different.
    #[cfg(feature = "cloud")]
    pub fn beside(class: Class, ports: u16) -> Self {
        Self { ports, ..Self::new(class) }
    }

    /// A uid that was not used before.
    pub fn uid(&mut self) -> String {
        self.uids += 1;
        format!("0000-{}", self.uids)
    }

    /// A new pod.
    pub fn pod(&mut self, chance: &mut Chance) -> Pod {
        self.pods += 1;
        let policy = match chance.below(10) {
            0..6 => RestartPolicy::Always,
            6..8 => RestartPolicy::OnFailure,
            _ => RestartPolicy::Never,
        };
        let inits = if chance.percent(35) { chance.between(1, 3) } else { 0 };
        let mains = if chance.percent(65) { 1 } else { chance.between(2, 3) };
        let mut spec = PodSpec {
            init_containers: (0..inits).map(|n| Self::init(n, chance)).collect(),
            containers: (0..mains).map(|n| self.main(n, chance)).collect(),
            restart_policy: policy,
            termination_grace_period_seconds: grace_s(chance),
            host_network: chance.percent(15),
            ..PodSpec::default()
        };
        let sidecars = spec.init_containers.iter_mut().filter(|it| it.restart_policy.is_some());
        for container in sidecars.chain(&mut spec.containers) {
            self.ports = self.ports % 60_000 + 1;
            probed::give(container, self.ports, chance);
        }
        if chance.percent(6) {
            spec.active_deadline_seconds = Some(chance.between(1, 600) as i64);
        }
        if chance.percent(40) {
            crate::volumes::draw(&mut spec, chance);
        }
        if chance.percent(4) {
            refuse(&mut spec, chance);
        }
        let metadata = Metadata {
            name: format!("pod{}", self.pods),
            namespace: if chance.percent(80) { "default" } else { "site" }.to_owned(),
            uid: self.uid(),
            // Not drawn: other worlds do not change.
            labels: [("part".to_owned(), (self.pods % 3).to_string())].into(),
            ..Metadata::default()
        };
        let mut pod = Pod { metadata, spec: Arc::new(spec), ..Pod::default() };
        crate::short::give(&mut pod);
        // Not drawn: other worlds do not change.
        if self.pods % 16 == 5 && !pod.spec.host_network {
            Arc::make_mut(&mut pod.spec).host_users = Some(false);
        }
        pod
    }

    fn main(&self, number: u64, chance: &mut Chance) -> Container {
        let storm = self.class == Class::Storm && chance.percent(80);
        let draw = match self.class {
            _ if storm => chance.between(60, 83),
            // Most containers at a site do not end.
            Class::Site if chance.percent(80) => 0,
            _ => chance.below(100),
        };
        let then = match draw {
            0..72 => Then::Run,
            72..84 => Then::Exit(0),
            84..96 => Then::Exit(1),
            _ => Then::Missing,
        };
        let fails = if chance.percent(12) { chance.between(1, 4) as u32 } else { 0 };
        let after_ms = if storm { chance.spread(2_000) } else { chance.spread(300_000) };
        container(
            format!("main{number}"),
            Program { fails, then, after_ms, term: term(chance), behaviour: Behaviour::default() },
            chance,
        )
    }

    fn init(number: u64, chance: &mut Chance) -> Container {
        let sidecar = chance.percent(35);
        let then = match chance.below(100) {
            0..85 if sidecar => Then::Run,
            0..88 => Then::Exit(0),
            88..95 => Then::Exit(1),
            95..98 => Then::Run,
            _ => Then::Missing,
        };
        let fails = if chance.percent(12) { chance.between(1, 3) as u32 } else { 0 };
        let after_ms = chance.spread(20_000);
        let program =
            Program { fails, then, after_ms, term: term(chance), behaviour: Behaviour::default() };
        let mut init = container(format!("init{number}"), program, chance);
        init.restart_policy = sidecar.then_some(RestartPolicy::Always);
        init
    }
}

/// Changes the image of a container to another one of the registry.
pub fn change_image(pod: &mut Pod, chance: &mut Chance) {
    let spec = Arc::make_mut(&mut pod.spec);
    let count = spec.init_containers.len() + spec.containers.len();
    let at = chance.index(count);
    let mut containers = spec.init_containers.iter_mut().chain(&mut spec.containers);
    let container = containers.nth(at).expect("counted before");
    let image = chance.pick(&IMAGES).0;
    container.image = image.into();
}

/// Whether this pod needs something that the agent does not support.
pub fn is_refused(pod: &Pod) -> bool {
    pod.spec.rest.keys().any(|field| field != "priority")
        || pod.spec.volumes.iter().any(|volume| !volume.rest.is_empty())
}

fn container(name: String, program: Program, chance: &mut Chance) -> Container {
    let nowhere = chance.percent(3);
    Container {
        name: name.into(),
        image: if nowhere { NOWHERE } else { chance.pick(&IMAGES).0 }.into(),
        command: program.command(),
        image_pull_policy: match chance.below(10) {
            0..6 => None,
            6..8 => Some(PullPolicy::IfNotPresent),
            8 => Some(PullPolicy::Always),
            _ => Some(PullPolicy::Never),
        },
        ..Container::default()
    }
}

fn term(chance: &mut Chance) -> Term {
    let code = *chance.pick(&[0, 143, 1]);
    if chance.percent(70) { Term::End(chance.spread(5_000), code) } else { Term::Ignore }
}

fn grace_s(chance: &mut Chance) -> Option<i64> {
    match chance.below(8) {
        0..2 => None,
        2 => Some(0),
        3 => Some(1),
        4 => Some(2),
        5 => Some(5),
        6 => Some(chance.between(1, 60) as i64),
        _ => Some(chance.between(60, 300) as i64),
    }
}

fn refuse(spec: &mut PodSpec, chance: &mut Chance) {
    if chance.percent(50) {
        let mut volume = Volume { name: "v".into(), ..Volume::default() };
        volume.rest.insert("iscsi".to_owned(), json!({"lun": 0}));
        spec.volumes.push(volume);
    } else {
        let claim = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
        spec.rest.insert("resourceClaims".to_owned(), claim);
    }
}
