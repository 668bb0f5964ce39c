# packer build gpu.pkr.hcl, with wheels/, inventory.yaml, packer.pem and seed/ (cloud-init's user-data and meta-data, which
# admit the user packer with that key) beside it. Packer 1.7 and newer first: packer plugins install github.com/hashicorp/qemu
variable "image" {
  type    = string
  default = "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-generic-amd64.qcow2"
}

variable "checksum" {
  type    = string
  default = "file:https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS"
}

variable "key" {
  type    = string
  default = "packer.pem"
}

source "qemu" "gpu" {
  iso_url              = var.image
  iso_checksum         = var.checksum
  disk_image           = true
  disk_size            = "20G"
  format               = "qcow2"
  memory               = 8192
  cpus                 = 4
  headless             = true
  cd_files             = ["seed/*"]
  cd_label             = "cidata"
  ssh_username         = "packer"
  ssh_private_key_file = var.key
  shutdown_command     = "sudo shutdown -P now"
}

build {
  sources = ["source.qemu.gpu"]

  provisioner "shell" {
    inline = ["cloud-init status --wait", "mkdir /tmp/gpuprov"]
  }

  provisioner "file" {
    sources     = ["inventory.yaml", "wheels"]
    destination = "/tmp/gpuprov/"
  }

  # A new kernel is installed, and modules are built for it, without a boot: a boot would start the first boot's unit.
  provisioner "shell" {
    inline_shebang  = "/bin/bash -e"
    execute_command = "sudo {{ .Vars }} bash -e {{ .Path }}"
    inline = [
      "apt-get update -q",
      "DEBIAN_FRONTEND=noninteractive apt-get install -qy python3-venv python3-apt dkms linux-headers-amd64",
      "python3 -m venv /tmp/gpuprov/venv",
      "/tmp/gpuprov/venv/bin/pip install -q --no-index --find-links /tmp/gpuprov/wheels gpuprov",
      "cd /tmp/gpuprov",
      "venv/bin/gpuprov bake inventory.yaml --limit image --root / --wheels wheels",
      "rm -rf /tmp/gpuprov",
      "cloud-init clean --machine-id --logs --seed",
    ]
  }
}
