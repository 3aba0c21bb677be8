# Builds an image from which VMs start, for a config without `bundle`. See README.md in this folder.
packer {
  required_plugins {
    amazon        = { source = "github.com/hashicorp/amazon", version = ">= 1.3.0" }
    digitalocean  = { source = "github.com/digitalocean/digitalocean", version = ">= 1.4.0" }
    googlecompute = { source = "github.com/hashicorp/googlecompute", version = ">= 1.1.0" }
    openstack     = { source = "github.com/hashicorp/openstack", version = ">= 1.1.0" }
  }
}

variable "files" {
  type        = string
  default     = "build/image"
  description = "Where `spillway image` wrote bundle.tar.gz and bake.sh."
}

variable "region" {
  type        = string
  default     = "eu-west-1"
  description = "EC2: where the image is built; the gateway's cloud.region."
}

variable "project" {
  type        = string
  default     = ""
  description = "GCE: the gateway's cloud.project."
}

variable "zone" {
  type        = string
  default     = "europe-west1-b"
  description = "GCE: zone of the VM from which the image is taken."
}

variable "network" {
  type        = string
  default     = ""
  description = "OpenStack: the VM's network, which Packer must be able to reach."
}

variable "flavor" {
  type        = string
  default     = "m1.medium"
  description = "OpenStack: flavor of the VM from which the image is taken."
}

variable "droplet_region" {
  type        = string
  default     = "fra1"
  description = "DigitalOcean: where the image is built; the gateway's cloud.region."
}

locals {
  image = "spillway-${formatdate("YYYYMMDD-hhmmss", timestamp())}"
}

source "amazon-ebs" "debian" {
  region        = var.region
  instance_type = "t3.medium"
  ssh_username  = "admin"
  ami_name      = local.image

  source_ami_filter {
    filters     = { name = "debian-12-amd64-*", virtualization-type = "hvm", root-device-type = "ebs" }
    owners      = ["136693071363"] # Debian
    most_recent = true
  }
}

source "googlecompute" "debian" {
  project_id          = var.project
  zone                = var.zone
  machine_type        = "e2-medium"
  source_image_family = "debian-12"
  ssh_username        = "packer"
  image_name          = local.image
  image_family        = "spillway"
}

source "openstack" "debian" {
  flavor            = var.flavor
  networks          = [var.network]
  source_image_name = "debian-12"
  ssh_username      = "debian"
  image_name        = local.image
}

source "digitalocean" "debian" {
  region        = var.droplet_region
  size          = "s-2vcpu-4gb"
  image         = "debian-12-x64"
  ssh_username  = "root"
  snapshot_name = local.image
}

build {
  sources = [
    "source.amazon-ebs.debian",
    "source.digitalocean.debian",
    "source.googlecompute.debian",
    "source.openstack.debian",
  ]

  provisioner "shell" {
    # Otherwise cloud-init would install packages at the same time.
    inline = ["! command -v cloud-init > /dev/null || cloud-init status --wait"]
  }

  provisioner "file" {
    sources     = ["${var.files}/bundle.tar.gz", "${var.files}/bake.sh"]
    destination = "/tmp/"
  }

  provisioner "shell" {
    inline = ["sudo bash /tmp/bake.sh", "rm /tmp/bundle.tar.gz /tmp/bake.sh"]
  }
}
