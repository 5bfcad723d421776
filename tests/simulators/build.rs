//! The library of the simulators is made of the cores alone.

fn main() {
    println!("cargo::rustc-cfg=cores_alone");
    println!("cargo::rerun-if-changed=build.rs");
}
