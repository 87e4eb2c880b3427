"""The guests' hardware: what is built in, what can be plugged, and the modules that drive it."""

from pathlib import Path

# No udev runs in the guest, so nothing loads a module by itself: what a test needs is here.
MODULES = (
    *("xhci_pci", "usbhid", "hid_generic", "evdev", "psmouse", "mousedev", "wacom", "uinput"),
    *("ftdi_sio", "cdc_acm", "option"),
    *("usb_storage", "uas", "sd_mod", "sr_mod", "sg", "nvme"),
    *("snd_usb_audio", "snd_hda_intel", "snd_hda_codec_generic"),
    *("cdc_ether", "cdc_subset", "rndis_host", "virtio_net"),
    *("virtio_gpu", "i2c_i801", "i2c_dev", "i6300esb", "button"),
    *("dummy_hcd:num=6", "libcomposite", "usb_f_acm", "usb_f_hid", "usb_f_mass_storage"),
)

# Loaded when drm_kms_helper gives no framebuffer any more: this driver does not get through with one.
LATE_MODULES = ("radeon",)
FRAMEBUFFERS = "/sys/module/drm_kms_helper/parameters/fbdev_emulation"

HOTPLUG_PORTS = ("rp1", "rp2", "rp3")  # PCI root ports that are empty at boot


def full_machine(work: Path) -> list[str]:
    """QEMU words for scenario 1: one of everything that the rules tell apart."""
    for name, size in (("stick", 16), ("spare", 32), ("shared", 32)):
        with (work / f"{name}.img").open("wb") as image:
            image.truncate(size << 20)
    return [
        *["-device", "qemu-xhci,id=xhci,p2=8,p3=8,addr=0x3"],
        *_usb("usb-kbd", "1"),
        *_usb("usb-tablet", "2"),
        *[
            "-chardev",
            "null,id=ftdi",
            *_usb("usb-serial", "3", "chardev=ftdi,always-plugged=on,serial=FT0001"),
        ],
        *_drive("stick", work),
        *_usb("usb-storage", "4", "drive=stick,removable=on,serial=STICK0001"),
        *_usb("usb-ccid", "5"),
        *["-audiodev", "none,id=sound", *_usb("usb-audio", "6", "audiodev=sound")],
        *_usb("usb-hub", "7"),
        *_usb("usb-hub", "7.1"),
        *_usb("usb-mouse", "7.1.1"),
        *["-device", "virtio-gpu-pci,addr=0x4"],
        *["-device", "intel-hda,id=hda,addr=0x5", "-device", "hda-duplex,bus=hda.0,audiodev=sound"],
        *_drive("spare", work),
        *["-device", "nvme,drive=spare,serial=NVME0001,addr=0x6"],
        # one namespace behind two controllers: its disk lies below virtual/nvme-subsystem
        *_drive("shared", work),
        *["-device", "nvme-subsys,id=subsystem,nqn=pair"],
        *["-device", "nvme,id=path-a,serial=PAIR0001,subsys=subsystem,addr=0xa"],
        *["-device", "nvme-ns,drive=shared,bus=path-a,nsid=1,shared=on"],
        *["-device", "nvme,id=path-b,serial=PAIR0001,subsys=subsystem,addr=0xb"],
        *["-device", "ati-vga,model=rv100,addr=0xc,romfile="],
        *["-chardev", f"socket,id=tpm,path={work}/tpm.sock", "-tpmdev", "emulator,id=tpm0,chardev=tpm"],
        *["-device", "tpm-crb,tpmdev=tpm0"],
        *["-device", "i6300esb,addr=0x7"],
        *["-chardev", "null,id=pciserial", "-device", "pci-serial,chardev=pciserial,addr=0x8"],
        *["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,addr=0x9,romfile="],
        *_root_ports(),
    ]


def _usb(driver: str, port: str, more: str = "") -> list[str]:
    return ["-device", ",".join(filter(None, [f"{driver},bus=xhci.0,port={port}", more]))]


def _drive(name: str, work: Path) -> list[str]:
    return ["-drive", f"if=none,id={name},format=raw,file={work}/{name}.img"]


def _root_ports() -> list[str]:
    words = []
    for number, name in enumerate(HOTPLUG_PORTS, start=1):
        words += [
            "-device",
            f"pcie-root-port,id={name},chassis={number},slot={number},addr=0x1c.{number - 1:x}",
        ]
    words[1] += ",multifunction=on"
    return words
